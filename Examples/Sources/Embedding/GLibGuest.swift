// A run loop drives GLib's main context.

import CGLib
public import EventLoop

#if canImport(Glibc)
import Glibc
#endif

/// A GLib context as a guest of a run loop. On the run loop's thread.
///
/// GLib has no descriptor of its own: it says before each wait which descriptors it waits for. They are put into an epoll set, which the
/// run loop watches.
public final class GLibGuest: @unchecked Sendable {
    // SAFETY: used on the run loop's thread.

    private let context: OpaquePointer
    private let set: Int32
    private var isAcquired = false
    private var priority: gint = 0
    private var polled: [GPollFD] = []
    private var watched: Set<gint> = []
    public private(set) var source: RunLoop.GuestLoop!

    /// - Parameter context: nil for GLib's default context.
    public init(_ context: OpaquePointer? = nil) throws(RunLoop.SourceError) {
        self.context = g_main_context_ref(context ?? g_main_context_default())
        set = epoll_create1(Int32(EPOLL_CLOEXEC))
        if set < 0 { throw .system(operation: "epoll_create1", errno: errno) }
        // GLib demands it of a thread that calls prepare, query, check and dispatch.
        isAcquired = g_main_context_acquire(self.context) != 0
        guard isAcquired else { throw .system(operation: "acquiring a GLib context", errno: EBUSY) }
        source = try RunLoop.GuestLoop(
            descriptor: set, label: "GLib", prepare: { [unowned self] in prepare() }, dispatch: { [unowned self] in dispatch() })
    }

    deinit {
        source?.invalidate()
        if set >= 0 { close(set) }
        if isAcquired { g_main_context_release(context) }
        g_main_context_unref(context)
    }

    private func prepare() -> RunLoop.Instant? {
        g_main_context_prepare(context, &priority)
        var timeout: gint = -1
        var count = g_main_context_query(context, priority, &timeout, &polled, gint(polled.count))
        while count > polled.count {  // ends: nobody else changes the context's list
            polled = Array(repeating: GPollFD(), count: Int(count))
            count = g_main_context_query(context, priority, &timeout, &polled, count)
        }
        polled.removeLast(polled.count - Int(count))
        let isAlwaysReady = !watchPolled()
        if timeout == 0 || isAlwaysReady { return .now }
        return timeout < 0 ? nil : .now.advanced(by: .milliseconds(Int(timeout)))
    }

    private func dispatch() {
        // The revents of `polled`, as GLib's own wait would fill them in.
        g_poll(&polled, guint(polled.count), 0)
        if g_main_context_check(context, priority, &polled, gint(polled.count)) != 0 { g_main_context_dispatch(context) }
    }

    /// Has the set watch what GLib waits for. False if epoll cannot watch one (a regular file), which poll(2) calls always ready.
    private func watchPolled() -> Bool {
        var wanted: [gint: UInt32] = [:]
        for entry in polled { wanted[entry.fd, default: 0] |= UInt32(entry.events) }
        for gone in watched where wanted[gone] == nil { epoll_ctl(set, EPOLL_CTL_DEL, gone, nil) }
        watched = []
        var canWatchAll = true
        for (descriptor, events) in wanted {
            // poll's and epoll's bits are the same on Linux. In every call: the number may be another file's than before.
            var event = epoll_event(events: events, data: epoll_data_t(fd: descriptor))
            let isWatched =
                epoll_ctl(set, EPOLL_CTL_MOD, descriptor, &event) == 0
                || epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0
            if isWatched { watched.insert(descriptor) } else if errno == EPERM { canWatchAll = false }
        }
        return canWatchAll
    }
}
