// Lifecycle of ForeignEvent: a test makes, adds and frees it on the thread of the loop that owns its base, as a C library would. It owns
// one libevent event. That event holds one reference to it from `add` or `init` until `free`.

import CLibevent
import EventLoop
import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// An event that is not the run loop's own, on the base that `withEventBase` passes to its body.
final class ForeignEvent: @unchecked Sendable {
    // SAFETY: used on the base's thread only.
    let base: OpaquePointer
    private var event: OpaquePointer?
    private let body: (ForeignEvent) -> Void

    init(
        _ base: OpaquePointer, _ descriptor: Int32 = -1, _ what: Int32 = 0, priority: Int32 = 1, _ body: @escaping (ForeignEvent) -> Void
    ) {
        self.base = base
        self.body = body
        event = event_new(
            base, descriptor, Int16(what),
            { _, _, context in
                let event = Unmanaged<ForeignEvent>.fromOpaque(context!).takeUnretainedValue()
                event.body(event)
            }, Unmanaged.passRetained(self).toOpaque())
        precondition(event != nil, "event_new")
        precondition(event_priority_set(event, priority) == 0, "event_priority_set")
    }

    func add(milliseconds: Int? = nil) {
        if let milliseconds {
            // The first module that the compiler reads provides the members of `timeval`, and which one is first varies with the
            // files of a compile job.
            let time = (milliseconds / 1000, milliseconds % 1000 * 1000)
            let code = withUnsafePointer(to: time) {
                $0.withMemoryRebound(to: timeval.self, capacity: 1) { event_add(event, $0) }
            }
            precondition(code == 0, "event_add")
        } else {
            precondition(event_add(event, nil) == 0)
        }
    }

    func activate() { event_active(event, EV_TIMEOUT, 1) }

    func remove() { precondition(event_del(event) == 0) }

    func free() {
        guard let event else { return }
        self.event = nil
        event_free(event)
        Unmanaged.passUnretained(self).release()
    }
}
