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

    /// Starts `count` threads, named `name-0`, `name-1` and so on. When one cannot be started, or its `setup` throws, those that were
    /// started are ended and the error comes out here. A count below one is a precondition failure.
    public init(
        count: Int, name: String = "loop",
        setup: (@Sendable (RunLoop) throws -> Void)? = nil, teardown: (@Sendable (RunLoop) -> Void)? = nil
    ) throws { /* DOES CALLOUT */
        precondition(count > 0, "a group of run loop threads has at least one; pass a positive count")
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

    /// The loops of the group's threads, in the order of their names.
    public var runLoops: [RunLoop] { threads.map(\.runLoop) }

    /// The next loop, round robin.
    public func next() -> RunLoop {
        let turn = turn.add(1, ordering: .relaxed).oldValue
        return threads[Int(turn % UInt64(threads.count))].runLoop
    }

    /// Stops and joins every thread; while one is stuck in a handler, says which on standard error every ten seconds. From a member thread
    /// it is a precondition failure.
    public func shutdown() {
        shutdown(tellingEvery: .seconds(10), say)
    }

    /// As `shutdown()`; `tell` gets the message, at each `interval` that a thread is stuck. For tests, which do not wait for ten seconds.
    package func shutdown(tellingEvery interval: Duration, _ tell: (String) -> Void) { /* DOES CALLOUT */
        stopAll()
        for thread in threads {
            while !thread.join(timeout: interval) {  // ends: when the handler returns; until then somebody is told
                tell("run loop thread \"\(thread.name)\" has been told to stop and is still in a handler\n")
            }
        }
    }

    /// Stops every thread. The threads that had not ended when `timeout` (for all together, in real time) passed.
    public func shutdown(timeout: Duration) -> [RunLoopThread] {
        stopAll()
        let deadline = RunLoop.Instant.now.advanced(by: timeout)
        return threads.filter { !$0.join(timeout: RunLoop.Instant.now.duration(to: deadline)) }
    }

    private func stopAll() {
        precondition(
            !threads.contains { $0.runLoop.isCurrent && !$0.runLoop.belongsToParentProcess },
            "a group's shutdown joins its threads, so none of them can call it; call it from another thread")
        for thread in threads { thread.stop() }
    }

    private func say(_ text: String) {
        let bytes = Array(text.utf8)
        // A message that cannot be written has nowhere else to go.
        _ = bytes.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
