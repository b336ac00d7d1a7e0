import Synchronization

/// One poller and one wake-up channel in reserve, for calls that cannot throw when the process has run out of descriptors. Thread-safe. Lifecycle:
/// made when the process has made a poller and has descriptors left; taken by one atomic exchange. A child only forgets them (decision 24).
enum Reserve {
    private static let poller = Slot<Poller>()
    private static let channel = Slot<ChannelBox>()
    /// When a part that is missing is tried again; `.max` when none is known to be missing.
    private static let nextTry = Atomic<Int64>(.max)
    /// From a try that failed to the next one, half a second. Each try opens all the descriptors that are left, for a moment.
    private static var pause: Int64 { 500_000_000 }
    // See `LoopGlobals`.
    static func prepare() { _ = (nextTry.load(ordering: .relaxed), poller.isEmpty, channel.isEmpty) }
    static func clear() {
        poller.clear()
        channel.clear()
    }

    private final class ChannelBox {
        private var channel: WakeChannel?
        init?() {
            guard let channel = WakeChannel() else { return nil }
            self.channel = consume channel
        }
        func take() -> WakeChannel? { channel.take() }
    }

    /// Nothing wakes it before `watch(_:)`.
    static func takePoller() -> Poller? { take(poller) }
    static func takeChannel() -> WakeChannel? { take(channel)?.take() }

    private static func take<Part: AnyObject>(_ slot: borrowing Slot<Part>) -> Part? {
        // After the part is taken. A thread in `complete` that still found the part has reset `nextTry` before, so this note stays.
        defer { _ = nextTry.compareExchange(expected: .max, desired: .min, ordering: .acquiringAndReleasing) }
        return slot.take()
    }

    /// Makes what is missing, if the process can spare it.
    static func complete() {
        _ = nextTry.exchange(.max, ordering: .acquiringAndReleasing)
        makeMissing()
    }

    /// As `complete()`, where a part is missing, and not too soon after a try that failed. At the beginning of a run.
    @inline(__always) static func completeAgain() {
        let time = nextTry.load(ordering: .relaxed)
        if time != .max { completeAgain(at: time) }
    }

    @inline(never) private static func completeAgain(at time: Int64) {
        if time != .min && RunLoop.Instant.now.nanoseconds < time { return }
        // Of several threads one tries.
        if nextTry.compareExchange(expected: time, desired: .max, ordering: .acquiringAndReleasing).exchanged { makeMissing() }
    }

    private static func makeMissing() {
        let hasPoller = poller.fill { try? Poller() }
        // After the poller, which needs more descriptors.
        let hasChannel = channel.fill { ChannelBox() }
        if hasPoller && hasChannel { return }
        nextTry.store(RunLoop.Instant.now.nanoseconds.addingSaturated(pause), ordering: .releasing)
    }

    /// Holds one object, or none.
    private struct Slot<Object: AnyObject>: ~Copyable, @unchecked Sendable {
        // SAFETY: the thread that takes a part owns it alone; the exchange orders earlier accesses before its own.
        private let retained = Atomic<Unmanaged<Object>?>(nil)
        var isEmpty: Bool { retained.load(ordering: .relaxed) == nil }
        borrowing func clear() { retained.store(nil, ordering: .relaxed) }
        borrowing func take() -> Object? { retained.exchange(nil, ordering: .acquiringAndReleasing)?.takeRetainedValue() }

        /// True when there is one now.
        borrowing func fill(_ make: () -> Object?) -> Bool {
            if !isEmpty { return true }
            guard let object = make() else { return false }
            let reference = Unmanaged.passRetained(object)
            let (isKept, _) = retained.compareExchange(expected: nil, desired: reference, ordering: .acquiringAndReleasing)
            if !isKept { reference.release() }  // another thread was faster
            return true
        }
    }
}
