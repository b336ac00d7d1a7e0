// Lifecycle: the timer descriptor and its event are made with the poller. `disconnect` takes the event off and frees it while the base
// still lives; the descriptor is closed by deinit. All on the loop's thread.

internal import CPlatform
internal import EventLoopLibC

/// A timerfd in the base, armed only when the deadline of a wait changes; where there is none, a libevent timeout.
///
/// libevent's own timeouts follow a coarse clock (2 ms late in the median), and its precise mode arms a timer on every wait.
struct DeadlineTimer: ~Copyable {
    struct Record {
        var hasFired = false
        /// The poller whose wait this timer ends by hand, because the base has events of C libraries.
        var host: Borrowed<Poller>?
    }

    /// The timer's descriptor, or -1 where there is none.
    let descriptor: Int32
    private let reportsEdges: Bool
    private let record: UnsafeMutablePointer<Record>
    /// What the kernel is armed for; `Int64.max` for nothing.
    private var armed = Int64.max

    init(_ base: borrowing EventBase, isInternal: Bool = false) throws(RunLoop.SourceError) {
        descriptor = cplatform_make_deadline_timer()
        let refusal = descriptor < 0 && errno != ENOSYS ? errno : 0
        reportsEdges = base.reportsEdges
        record = EventRecord.allocate(Record())
        let code = refusal == 0 ? add(to: base, isInternal: isInternal) : refusal
        if code == 0 { return }
        // Everything is initialized by now, so this ends in deinit, which closes the descriptor.
        EventRecord.free(record)
        throw .system(operation: refusal == 0 ? "watching a timer descriptor" : "making a timer descriptor", errno: code)
    }

    deinit {
        if descriptor >= 0 { cplatform_close(descriptor) }
    }

    /// Leaves its base for another one.
    mutating func move(to base: borrowing EventBase) {
        EventRecord.event(record).delete()
        if descriptor < 0 { armed = .max }
        let code = add(to: base)
        precondition(code == 0, "a timer descriptor that one base takes another one takes too; errno \(code)")
    }

    /// 0, or the errno of the kernel's refusal. An edge needs no read: each arming that comes due is a new one.
    private func add(to base: borrowing EventBase, isInternal: Bool = false) -> Int32 {
        let event = EventRecord.event(record)
        let flags: EventFlags = descriptor < 0 ? [.timeout] : reportsEdges ? [.read, .persist, .edge] : [.read, .persist]
        event.assign(base, descriptor, flags, isInternal: isInternal, Self.deadlineFired, record)
        return descriptor < 0 ? 0 : event.add()
    }

    private static let deadlineFired: EventCallback = { _, _, context in
        let record = context!.assumingMemoryBound(to: Record.self)
        record.pointee.hasFired = true
        record.pointee.host?.use { $0.countCollected() }
    }

    /// The base gets events of C libraries.
    func makeInternal(host: Poller) {
        EventRecord.event(record).makeInternal()
        record.pointee.host = Borrowed(host, keptBy: .event)
    }

    /// Before the base is freed; the last call.
    func disconnect() {
        EventRecord.event(record).delete()
        EventRecord.free(record)
    }

    var hasFired: Bool { record.pointee.hasFired }

    @inline(never)
    mutating func acknowledgeExpiry() {
        record.pointee.hasFired = false
        armed = .max
        if !reportsEdges { readExpiry() }
    }

    /// Makes an expired descriptor unreadable when nothing is armed: an edge needs no read, but `EPOLL_CTL_MOD` reports it once more.
    func forgetExpiry() {
        if armed == .max { readExpiry() }
    }

    private func readExpiry() {
        if descriptor < 0 { return }
        var count: UInt64 = 0
        _ = read(descriptor, &count, MemoryLayout<UInt64>.size)
    }

    /// Arms for `deadline` (`Int64.max`: none). A deadline later than the armed one is left to be armed when that one comes, so that
    /// a limit which moves with every run costs no system call.
    @inline(__always)
    mutating func arm(_ deadline: Int64) {
        if deadline == armed || (deadline > armed && deadline != .max) { return }
        rearm(deadline)
    }

    /// Arms for `deadline` and for nothing else, where a wake-up at an earlier one would be noticed.
    mutating func armExactly(_ deadline: Int64) {
        if deadline != armed { rearm(deadline) }
    }

    @inline(never)
    private mutating func rearm(_ deadline: Int64) {
        armed = deadline
        if descriptor >= 0 {
            // A time in the past, zero included, is "at once"; the kernel takes zero for "disarm".
            let result = cplatform_arm_deadline_timer(descriptor, deadline == .max ? 0 : max(1, deadline))
            precondition(result == 0, "timerfd_settime takes any valid time; errno \(errno)")
            return
        }
        let event = EventRecord.event(record)
        event.delete()
        if deadline == .max { return }
        let left = max(0, deadline.subtractingSaturated(RunLoop.Instant.now.nanoseconds))
        event.add(afterMicroseconds: left / 1000 + 1)
    }
}
