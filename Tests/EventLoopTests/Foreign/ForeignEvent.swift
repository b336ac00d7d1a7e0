// Lifecycle of ForeignEvent: made, added and freed on the thread of the loop whose base it is on, as a C library would; it owns one
// libevent event, which holds one reference to it from `add` or `init` until `free`.

import CLibevent
import EventLoop
import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// An event that is not the run loop's own, on the base that `withEventBase` hands out.
final class ForeignEvent: @unchecked Sendable {
    // SAFETY: used on the base's thread only.
    let base: OpaquePointer
    private var event: OpaquePointer?
    private let body: (ForeignEvent) -> Void

    init(_ base: OpaquePointer, _ descriptor: Int32 = -1, _ what: Int32 = 0, _ body: @escaping (ForeignEvent) -> Void) {
        self.base = base
        self.body = body
        event = event_new(
            base, descriptor, Int16(what),
            { _, _, context in
                let event = Unmanaged<ForeignEvent>.fromOpaque(context!).takeUnretainedValue()
                event.body(event)
            }, Unmanaged.passRetained(self).toOpaque())
        precondition(event != nil, "event_new")
    }

    func add(milliseconds: Int? = nil) {
        if let milliseconds {
            var time = timeval(tv_sec: milliseconds / 1000, tv_usec: .init(milliseconds % 1000 * 1000))
            precondition(event_add(event, &time) == 0)
        } else {
            precondition(event_add(event, nil) == 0)
        }
    }

    func remove() { precondition(event_del(event) == 0) }

    func free() {
        guard let event else { return }
        self.event = nil
        event_free(event)
        Unmanaged.passUnretained(self).release()
    }
}
