internal import CPlatform
internal import EventLoopLibC

/// A timerfd in the base, armed only when the deadline of a wait changes; where there is none, a libevent timeout. libevent's own timeouts follow a
/// coarse clock (2 ms late in the median), and its precise mode arms a timer on every wait. Lifecycle: the timer descriptor is made with the poller,
/// one of whose own events watches it, and closed by deinit. All on the loop's thread.
struct DeadlineTimer: ~Copyable {
    /// The timer's descriptor, or -1 where there is none.
    let descriptor: Int32
    private let reportsEdges: Bool
    /// The poller's event. It has the timeout where there is no descriptor.
    var event: OpaqueEvent?
    /// The event was reported, and nobody has acknowledged that.
    var hasFired = false
    /// What the kernel is armed for; `Int64.max` for nothing.
    private var armed = Int64.max

    init(reportsEdges: Bool) throws(RunLoop.SourceError) {
        descriptor = cplatform_make_deadline_timer()
        self.reportsEdges = reportsEdges
        if descriptor < 0 && errno != ENOSYS { throw .system(operation: "making a timer descriptor", errno: errno) }
    }

    deinit { if descriptor >= 0 { cplatform_close(descriptor) } }

    /// What the event watches for. An edge needs no read: each arming that comes due is a new one.
    var flags: EventFlags { descriptor < 0 ? [.timeout] : reportsEdges ? [.read, .persist, .edge] : [.read, .persist] }
    /// The event is on another base, without a timeout.
    mutating func eventWasMoved() { if descriptor < 0 { armed = .max } }

    @inline(never) mutating func acknowledgeExpiry() {
        hasFired = false
        armed = .max
        if !reportsEdges && descriptor >= 0 { readReports(of: descriptor) }
    }

    /// Makes an expired descriptor unreadable when nothing is armed: an edge needs no read, but `EPOLL_CTL_MOD` reports it once more.
    func forgetExpiry() { if armed == .max { readReports(of: descriptor) } }

    /// Arms for `deadline` (`Int64.max`: none), at the latest when an earlier armed one comes: a limit that moves with every run costs no call.
    @inline(__always) mutating func arm(_ deadline: Int64) {
        if deadline == armed || (deadline > armed && deadline != .max) { return }
        rearm(deadline)
    }

    /// Arms for `deadline` and for nothing else, while nobody waits: a wake-up at an earlier one would be noticed.
    mutating func armExactly(_ deadline: Int64) { if deadline != armed { rearm(deadline) } }

    @inline(never) private mutating func rearm(_ deadline: Int64) {
        armed = deadline
        if descriptor >= 0 {
            // A time in the past, zero included, is "at once"; the kernel takes zero for "disarm".
            let result = cplatform_arm_deadline_timer(descriptor, deadline == .max ? 0 : max(1, deadline))
            precondition(result == 0, "timerfd_settime takes any valid time; errno \(errno)")
            return
        }
        let event = event!  // the poller watches it before it waits
        event.delete()
        if deadline == .max { return }
        let left = max(0, deadline.subtractingSaturated(RunLoop.Instant.now.nanoseconds))
        event.add(afterMicroseconds: left / 1000 + 1)
    }
}
