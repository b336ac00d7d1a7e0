// A part of the load: a few threads that use one area of the library until they are told to stop.

import EventLoop

class Part: @unchecked Sendable {
    // SAFETY: set by the one thread that starts and stops the parts.
    private var threads: [RunLoopThread] = []
    let book: Book

    init(_ book: Book) { self.book = book }

    /// Begins. The load is bounded by the interval of the timers that make it.
    func start() throws {}

    /// Asks for nothing more. What was asked for goes on.
    final func stopAsking() { for driver in drivers { driver.invalidate() } }

    /// Frees what is left: the accounts are balanced.
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

    /// Has `body` called on the thread's loop again and again.
    final func drive(_ thread: RunLoopThread, every interval: Duration, _ body: @escaping @Sendable () -> Void) {
        let timer = RunLoop.Timer(every: interval) { _ in body() }
        drivers.append(timer)
        thread.runLoop.add(timer)
    }
}
