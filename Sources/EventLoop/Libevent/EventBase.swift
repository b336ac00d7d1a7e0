// Lifecycle of `event_base`: made by the poller of one mode on the thread of its loop, used and freed on that thread only
// (hence EVENT_BASE_FLAG_NOLOCK), after the events that the poller added have been freed. Events that C libraries added are theirs.

internal import CLibevent
internal import CPlatform
internal import EventLoopLibC

/// One libevent base. Owner's thread only.
struct EventBase: ~Copyable {
    let raw: OpaquePointer
    /// Whether the backend reports edges; poll and select do not.
    let reportsEdges: Bool
    /// Somebody else made the base and frees it.
    private let isBorrowed: Bool
    /// How many levels of active-event priority a base has. They are for the events of C libraries.
    static let levels: Int32 = 3
    /// The most urgent level, on which all of our own events stand.
    static let ownLevel: Int32 = 0

    /// Nil with errno set when the kernel or the memory refuses.
    init?() {
        LibeventRuntime.prepare()
        guard let config = event_config_new() else {
            errno = ENOMEM
            return nil
        }
        defer { event_config_free(config) }
        // "Do not allocate a lock for the event base, even if we have locking set up" (event.h): the base has one thread.
        event_config_set_flag(config, Int32(EVENT_BASE_FLAG_NOLOCK.rawValue))
        // Without it, libevent reads its clock after each wait; with it, for each timeout, which a base without C libraries does not have (event.h).
        event_config_set_flag(config, Int32(EVENT_BASE_FLAG_NO_CACHE_TIME.rawValue))
        // Ends the round of an event that activates itself in its callback. No other round is divided: there are fewer descriptors.
        event_config_set_max_dispatch_interval(config, nil, 1 << 20, 0)
        guard let raw = cplatform_make_event_base(event_base_new_with_config, config) else { return nil }
        // event.h: "must be called before any events have been activated". A new base has none, so only memory can be missing.
        guard event_base_priority_init(raw, Self.levels) == 0 else {
            event_base_free(raw)
            errno = ENOMEM
            return nil
        }
        self.init(raw, isBorrowed: false)
    }

    /// With `isBorrowed` a base that a C program has made, which outlives this value. Only libevent's own tests run on one (Tests/LibeventRegress).
    init(_ raw: OpaquePointer, isBorrowed: Bool) {
        LibeventRuntime.prepare()
        (self.raw, self.isBorrowed) = (raw, isBorrowed)
        reportsEdges = event_base_get_features(raw) & Int32(EV_FEATURE_ET.rawValue) != 0
    }

    deinit { if !isBorrowed { event_base_free(raw) } }
    var leastUrgentLevel: Int32 { event_base_get_npriorities(raw) - 1 }
    /// Asks the kernel without waiting; negative with errno set if it refuses. Without `EVLOOP_ONCE` libevent asks again (258 against 143 ns).
    func poll() -> Int32 { event_base_loop(raw, EVLOOP_ONCE | EVLOOP_NONBLOCK) }
    /// Waits until a callback has been called. Negative with errno set when the kernel refuses.
    func wait() -> Int32 { event_base_loop(raw, EVLOOP_ONCE) }
    /// Makes the poll or wait in progress return after the callback that is running.
    func breakLoop() { event_base_loopbreak(raw) }
    /// The system call that the base waits with: epoll, poll, select, kqueue.
    var method: String { String(cString: event_base_get_method(raw)) }
    /// How many events have been added to the base, ours and those of C libraries; internal events are not counted.
    var addedEvents: Int { Int(event_base_get_num_events(raw, UInt32(EVENT_BASE_COUNT_ADDED))) }

    /// Whether an event of ours or of a C library, which is added to the base, watches this descriptor. Linear in the number of events.
    func watches(_ descriptor: Int32) -> Bool {
        var wanted = descriptor
        // event.h: the function "must return 0 to continue iteration, or some other integer to stop iterating", which is returned.
        return event_base_foreach_event(raw, { $2!.load(as: Int32.self) == event_get_fd($1) ? 1 : 0 }, &wanted) == 1
    }

    /// The earliest timeout of an event that is added, as `OpaqueEvent.timeout`. Linear in the number of events.
    func earliestTimeout(except own: OpaqueEvent) -> Int64? {
        typealias Search = (own: OpaquePointer, earliest: Int64)
        var search: Search = (own.raw, .max)
        event_base_foreach_event(
            raw,
            { _, event, context in
                let search = context!.assumingMemoryBound(to: Search.self)
                guard let event, event != search.pointee.own, let timeout = OpaqueEvent(raw: event).timeout else { return 0 }
                search.pointee.earliest = min(search.pointee.earliest, timeout)
                return 0
            }, &search)
        return search.earliest == .max ? nil : search.earliest
    }

    /// How many callbacks stand in libevent's queues.
    var activeEvents: Int { Int(event_base_get_num_events(raw, UInt32(EVENT_BASE_COUNT_ACTIVE))) }
    /// The most events that were active at one time since the last call, internal ones included.
    func takeMostActiveEvents() -> Int { Int(event_base_get_max_events(raw, UInt32(EVENT_BASE_COUNT_ACTIVE), 1)) }
}
