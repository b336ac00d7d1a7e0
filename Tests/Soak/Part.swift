// A part of the load: a few threads that use one area of the library until they are stopped.

import EventLoop

class Part: @unchecked Sendable {
    // SAFETY: only the thread that starts and stops the parts sets these.
    private var threads: [RunLoopThread] = []
    let book: Book

    init(_ book: Book) { self.book = book }

    /// Starts the load. The interval of the timers that create the load limits it.
    func start() throws {}

    /// Makes no new requests. Requests in progress continue.
    final func stopAsking() { for driver in drivers { driver.invalidate() } }

    /// Releases everything that is left, so that the accounts balance.
    func finish() {}

    final func end() {
        finish()
        for thread in threads { thread.stop() }
        for thread in threads where !thread.join(timeout: .seconds(60)) { book.fault("the thread \(thread.name) does not end") }
        threads = []
    }

    private var drivers: [RunLoop.Timer] = []

    final func thread(_ name: String) throws -> RunLoopThread {
        let thread = try RunLoopThread(name: name)
        threads.append(thread)
        return thread
    }

    /// Has `body` called on the thread's loop repeatedly.
    final func drive(_ thread: RunLoopThread, every interval: Duration, _ body: @escaping @Sendable () -> Void) {
        let timer = RunLoop.Timer(every: interval) { _ in body() }
        drivers.append(timer)
        thread.runLoop.add(timer)
    }
}
