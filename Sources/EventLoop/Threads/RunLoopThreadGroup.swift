// A fixed set of loop threads.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// A fixed set of loop threads for a server. Thread-safe.
public final class RunLoopThreadGroup: Sendable {
    private let threads: [RunLoopThread]
    private let turn = Atomic<UInt64>(0)

    /// Starts `count` threads, named `name-0`, `name-1` and so on. If a thread cannot be started, or its `setup` throws, ends the threads
    /// that were started and throws the error. A count below one is a precondition failure.
    public init(
        count: Int, name: String = "loop",
        setup: (@Sendable (RunLoop) throws -> Void)? = nil, teardown: (@Sendable (RunLoop) -> Void)? = nil
    ) throws { /* DOES CALLOUT */
        precondition(count > 0, "a group has at least one thread, and count is \(count); pass a positive count")
        var started: [RunLoopThread] = []
        do {
            for index in 0..<count {
                started.append(try RunLoopThread(name: "\(name)-\(index)", setup: setup, teardown: teardown))
            }
        } catch {
            for thread in started { thread.stop() }
            for thread in started { thread.join() }
            throw error
        }
        threads = started
    }

    /// The loops of the group's threads, in the order of the threads' numbers.
    public var runLoops: [RunLoop] { threads.map(\.runLoop) }

    /// The next loop, round robin.
    public func next() -> RunLoop {
        let turn = turn.add(1, ordering: .relaxed).oldValue
        return threads[Int(turn % UInt64(threads.count))].runLoop
    }

    /// Stops and joins every thread. While a thread is stuck in a handler, reports it on standard error every ten seconds. Calling it on a
    /// member thread is a precondition failure.
    public func shutdown() {
        shutdown(reportingEvery: .seconds(10), writeToStandardError)
    }

    /// Like `shutdown()`, but calls `report` with the message each `interval` while a thread is stuck. For tests, which do not wait for ten
    /// seconds.
    package func shutdown(reportingEvery interval: Duration, _ report: (String) -> Void) { /* DOES CALLOUT */
        stopAll()
        for thread in threads {
            while !thread.join(timeout: interval) {  // ends when the handler returns; until then it is reported
                report("run loop thread \"\(thread.name)\" was told to stop and is still in a handler\n")
            }
        }
    }

    /// Stops every thread, and waits at most `timeout` (for all together, in real time). Returns the threads that have not ended.
    public func shutdown(timeout: Duration) -> [RunLoopThread] {
        stopAll()
        let deadline = RunLoop.Instant.now.advanced(by: timeout)
        return threads.filter { !$0.join(timeout: RunLoop.Instant.now.duration(to: deadline)) }
    }

    private func stopAll() {
        precondition(
            !threads.contains { $0.runLoop.isCurrent && !$0.runLoop.belongsToParentProcess },
            "shutdown joins the group's threads, so it cannot be called on one of them; call it from another thread")
        for thread in threads { thread.stop() }
    }

    private func writeToStandardError(_ text: String) {
        let bytes = Array(text.utf8)
        // If the message cannot be written, there is nowhere else to report it.
        _ = bytes.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
