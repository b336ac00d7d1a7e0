// Lifecycle of `struct event`: its memory lies behind the Swift record that it serves, so that a source costs one allocation. The poller allocates,
// assigns, adds, deletes and frees it, all on the base's thread. libevent points at the memory from `event_add` to `event_del`.

internal import CLibevent
internal import EventLoopLibC

/// A Swift value with a `struct event` behind it.
enum EventRecord<Header: ~Copyable> {
    private static var offset: Int {
        let alignment = max(MemoryLayout<Header>.alignment, 16)
        return (MemoryLayout<Header>.size + alignment - 1) / alignment * alignment
    }

    /// What the record and its event need, for memory that somebody else allocates.
    static var byteCount: Int { offset + event_get_struct_event_size() }

    static func allocate(_ header: consuming Header) -> UnsafeMutablePointer<Header> {
        UnsafeMutableRawPointer.allocate(byteCount: byteCount, alignment: 16).initializeMemory(as: Header.self, to: header)
    }

    static func free(_ record: UnsafeMutablePointer<Header>) {
        record.deinitialize(count: 1)
        UnsafeMutableRawPointer(record).deallocate()
    }

    @inline(__always) static func event(_ record: UnsafeMutablePointer<Header>) -> OpaqueEvent {
        OpaqueEvent(raw: OpaquePointer(UnsafeMutableRawPointer(record) + offset))
    }
}

/// What an event watches for, in libevent's bits.
struct EventFlags: OptionSet, Sendable {
    let rawValue: Int16
    static let timeout = EventFlags(rawValue: Int16(EV_TIMEOUT))
    static let read = EventFlags(rawValue: Int16(EV_READ))
    static let write = EventFlags(rawValue: Int16(EV_WRITE))
    static let persist = EventFlags(rawValue: Int16(EV_PERSIST))
    static let edge = EventFlags(rawValue: Int16(EV_ET))
    static let closed = EventFlags(rawValue: Int16(EV_CLOSED))
}

typealias EventCallback = @convention(c) (Int32, Int16, UnsafeMutableRawPointer?) -> Void

/// A pointer to a `struct event` in memory that somebody else owns.
struct OpaqueEvent {
    let raw: OpaquePointer

    /// event.h: "event_assign() ... prepares ... for future calls to event_add". Not for an event that is added.
    /// `level` is libevent's priority: `EventBase.ownLevel` for all but what must run behind the events of C libraries.
    func assign(
        _ base: borrowing EventBase, _ descriptor: Int32, _ flags: EventFlags, level: Int32 = EventBase.ownLevel,
        isInternal: Bool = false, _ callback: EventCallback, _ context: UnsafeMutableRawPointer?
    ) {
        let assigned = event_assign(raw, base.raw, descriptor, flags.rawValue, callback, context)
        precondition(assigned == 0, "event_assign refuses only signals with descriptors' flags")
        let prioritized = event_priority_set(raw, level)
        precondition(prioritized == 0, "a level lies within the base's priorities, and the event is not active")
        if isInternal { makeInternal() }
    }

    /// From here on libevent calls the event's callback without counting it, and goes on to less urgent levels in the same round.
    func makeInternal() { clibevent_make_internal(raw) }

    /// 0, or the errno of the kernel's refusal.
    func add() -> Int32 {
        errno = 0
        if event_add(raw, nil) == 0 { return 0 }
        return errno == 0 ? EINVAL : errno
    }

    /// Adds the event with a timeout of its own, for platforms without a timer descriptor.
    func add(afterMicroseconds microseconds: Int64) {
        var time = timeval(tv_sec: .init(microseconds / 1_000_000), tv_usec: .init(microseconds % 1_000_000))
        event_add(raw, &time)
    }

    /// Takes the event off its base, out of the kernel's set and the queue of active ones; no-op if it is not there. Returns 0, or the errno of the
    /// kernel if the descriptor was closed before (EBADF, ENOENT): libevent ("that's fine too: we closed the fd") leaves that in errno only.
    @discardableResult
    func delete() -> Int32 {
        errno = 0
        event_del(raw)
        return errno
    }

    /// When it is due, in microseconds of libevent's time of day, saturated; nil without a timeout. Not for an active one: it may seem to have one.
    var timeout: Int64? {
        var time = timeval()
        guard event_pending(raw, Int16(EV_TIMEOUT), &time) != 0 else { return nil }
        return Int64(time.tv_sec).multipliedSaturated(by: 1_000_000).addingSaturated(Int64(time.tv_usec))
    }

    /// Queues the event's callback behind those that are active at its level.
    func activate() { event_active(raw, Int32(EV_TIMEOUT), 1) }
}
