// A C library that is busy on a loop, beside what a test is about.

import CLibevent
import EventLoop
public import Synchronization

/// An event of libevent that fires every millisecond.
public final class RepeatedEvent: @unchecked Sendable {
    // SAFETY: the event is touched on the loop's thread only; the counter is atomic.
    public let count = Atomic<Int>(0)
    private var event: OpaquePointer?

    public init() {}

    public func begin() {
        RunLoop.current.withEventBase { base in
            event = event_new(
                base, -1, Int16(EV_PERSIST),
                { _, _, context in
                    Unmanaged<RepeatedEvent>.fromOpaque(context!).takeUnretainedValue().count.wrappingAdd(1, ordering: .relaxed)
                }, Unmanaged.passUnretained(self).toOpaque())
            var interval = timeval(tv_sec: 0, tv_usec: 1_000)
            event_add(event, &interval)
        }
    }

    public func end() {
        if let event { event_free(event) }
        event = nil
    }
}
