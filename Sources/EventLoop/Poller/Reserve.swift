// One poller and one wake-up channel in reserve, for calls that cannot throw when the process has run out of descriptors.
//
// Lifecycle: made when the process has made a poller and has descriptors left; taken by one atomic exchange, so that no fork can leave the
// reserve locked. A child of fork leaves the parent's reserve alone, as it leaves the parent's loops alone: they share the kernel's set.

import Synchronization

/// What the process keeps for a shortage of descriptors. Thread-safe.
enum Reserve {
    // SAFETY: whoever takes a part owns it alone; the exchange orders what was done to it before.
    private static let poller = Place<Poller>()
    private static let channel = Place<ChannelBox>()
    /// A part was taken, or could not be made.
    private static let isIncomplete = Atomic<Bool>(false)

    /// Makes the places, which Swift would otherwise make at their first use.
    static func prepare() {
        _ = isIncomplete.load(ordering: .relaxed)
        _ = (poller.isEmpty, channel.isEmpty)
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
    static func takePoller() -> Poller? {
        isIncomplete.store(true, ordering: .relaxed)
        return poller.take()
    }

    static func takeChannel() -> WakeChannel? {
        isIncomplete.store(true, ordering: .relaxed)
        return channel.take()?.take()
    }

    /// Makes what is missing, if the process can spare it.
    static func complete() {
        isIncomplete.store(false, ordering: .relaxed)
        poller.fill { try? Poller() }
        // Last: it costs least, and what there is room for after a poller was made is not the last descriptor.
        channel.fill { ChannelBox() }
    }

    /// As `complete()`, where a part was missed before. At the beginning of a run.
    @inline(__always)
    static func completeAgain() {
        if isIncomplete.load(ordering: .relaxed) { complete() }
    }

    /// Holds one object, or none.
    private struct Place<Object: AnyObject>: ~Copyable, Sendable {
        /// A retained `Kept`, or zero.
        private let word = Atomic<UInt>(0)

        private final class Kept {
            let object: Object
            let forkEpoch = ForkEpoch.current
            init(_ object: Object) { self.object = object }
        }

        var isEmpty: Bool { word.load(ordering: .relaxed) == 0 }

        borrowing func take() -> Object? { takeKept()?.object }

        private borrowing func takeKept() -> Kept? {
            let address = word.exchange(0, ordering: .acquiringAndReleasing)
            guard let pointer = UnsafeRawPointer(bitPattern: address) else { return nil }
            let kept = Unmanaged<Kept>.fromOpaque(pointer)
            // The parent's is left alone, and with it the reference.
            if kept._withUnsafeGuaranteedRef({ $0.forkEpoch != ForkEpoch.current }) { return nil }
            return kept.takeRetainedValue()
        }

        borrowing func fill(_ make: () -> Object?) {
            guard let kept = takeKept() ?? make().map({ Kept($0) }) else { return isIncomplete.store(true, ordering: .relaxed) }
            let reference = Unmanaged.passRetained(kept)
            let (isKept, _) = word.compareExchange(
                expected: 0, desired: UInt(bitPattern: reference.toOpaque()), ordering: .acquiringAndReleasing)
            // Another thread was faster.
            if !isKept { reference.release() }
        }
    }
}
