// What one server loop has done. The loop's thread writes, any thread reads.

import EventLoop
import Synchronization

final class HostCounters: Sendable {
    /// Requests that were read, and those of them whose answers are not yet written.
    let requests = Count()
    let inProgress = Count()
    /// Connections that were accepted, and the open ones that have made a request.
    let accepted = Count()
    let connections = Count()
    /// How often the listener was paused because the process had no descriptors left.
    let pauses = Count()
    /// Requests that were in progress when the host was closed.
    let unanswered = Count()
    private let clock = Atomic<UInt64>(0)

    /// On the loop's thread, before any other thread reads the counters.
    func noteThread() { clock.store(ProcessorClock.ofThisThread, ordering: .relaxed) }

    /// The processor time of the loop's thread; nil if the system does not report it, or the thread has ended.
    var processorTime: Duration? { ProcessorClock.read(clock.load(ordering: .relaxed)) }
}

/// A number that one thread changes and any thread reads.
struct Count: ~Copyable, Sendable {
    private let number = Atomic<Int>(0)

    var value: Int { number.load(ordering: .relaxed) }
    func add(_ amount: Int) { number.add(amount, ordering: .relaxed) }
    func set(_ new: Int) { number.store(new, ordering: .relaxed) }
}
