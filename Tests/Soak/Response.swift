// How long a loop takes to respond, compared with how long this machine takes to wake a thread at all.

import EventLoop
import Glibc
import Synchronization

/// Delays since the last sample. Thread-safe.
final class Delays: Sendable {
    private let microseconds = Mutex<[Double]>([])

    func add(since date: RunLoop.Instant) {
        let delay = max(0, Double(RunLoop.Instant.now.nanoseconds - date.nanoseconds) / 1_000)
        microseconds.withLock { $0.append(delay) }
    }

    /// Returns the median in microseconds, or nil if there are no delays, and clears the delays.
    func take() -> Double? {
        median(
            microseconds.withLock { list in
                defer { list = [] }
                return list
            })
    }
}

func median(_ values: [Double]) -> Double? { values.isEmpty ? nil : values.sorted()[values.count / 2] }

/// Posts to a loop that is otherwise idle, to a busy loop, and to a thread without a loop.
final class Response: Part, @unchecked Sendable {
    // SAFETY: set before `start`, on the same thread.
    var busyLoop: RunLoop?
    let quiet = Delays()
    let busy = Delays()
    let control = Delays()

    override func start() throws {
        let posts = book.account("posts answered")
        let idle = try thread("idle").runLoop
        let plain = PlainThread { [control] date in
            control.add(since: date)
            posts.finish()
        }
        let targets = [(idle, quiet)] + (busyLoop.map { [($0, busy)] } ?? [])
        drive(try thread("poster"), every: .milliseconds(20)) {
            for (loop, delays) in targets {
                posts.ask()
                let date = RunLoop.Instant.now
                let isAccepted = loop.perform {
                    delays.add(since: date)
                    posts.finish()
                }
                if !isAccepted { posts.takeBack() }
            }
            posts.ask()
            plain.post()
        }
    }
}

/// A thread that reads a pipe, to measure the cost of a wake-up without the library. It ends with the program.
private final class PlainThread: Sendable {
    private let writeEnd: Int32
    private let readEnd: Int32
    private let answer: @Sendable (RunLoop.Instant) -> Void

    init(_ answer: @escaping @Sendable (RunLoop.Instant) -> Void) {
        var ends: [Int32] = [-1, -1]
        precondition(pipe(&ends) == 0, "pipe: errno \(errno)")
        (readEnd, writeEnd) = (ends[0], ends[1])
        self.answer = answer
        var handle = pthread_t()
        let code = pthread_create(
            &handle, nil,
            { context in
                Unmanaged<PlainThread>.fromOpaque(context!).takeRetainedValue().read()
                return nil
            }, Unmanaged.passRetained(self).toOpaque())
        precondition(code == 0, "pthread_create: errno \(code)")
        pthread_detach(handle)
    }

    func post() { _ = withUnsafeBytes(of: RunLoop.Instant.now.nanoseconds) { write(writeEnd, $0.baseAddress, $0.count) } }

    private func read() {
        var nanoseconds: Int64 = 0
        while withUnsafeMutableBytes(of: &nanoseconds, { Glibc.read(readEnd, $0.baseAddress, $0.count) }) == 8 {  // ends: never
            answer(RunLoop.Instant(nanoseconds: nanoseconds))
        }
    }
}
