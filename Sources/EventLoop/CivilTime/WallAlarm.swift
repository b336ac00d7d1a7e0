// Lifecycle: created with the source. deinit closes the descriptor, after the kernel has stopped watching it.

internal import CPlatform
internal import EventLoopLibC

/// A timer of the kernel on CLOCK_REALTIME, and the state of its source. All calls after `init` are made in `withState`: the last date counts.
struct WallAlarm<State: Sendable>: ~Copyable, Sendable {
    /// Readable from the date on, until `drain`.
    let descriptor: Int32
    let identity: FileIdentity
    /// Whether it is also readable when the clock was set.
    private let reportsSettings: Bool
    private let mark = ProcessMark()
    /// Its lock is held while the source's own and that of a manual clock are taken.
    private let state: LoopLock<State>

    init(_ state: State, reportsSettings: Bool) throws(RunLoop.SourceError) {
        descriptor = cplatform_make_wall_timer()
        guard descriptor >= 0, let identity = FileIdentity(of: descriptor) else {
            throw .system(operation: "making a timer of the wall clock", errno: errno)
        }
        (self.identity, self.reportsSettings) = (identity, reportsSettings)
        self.state = LoopLock(state)
        arm(.distantFuture)
    }

    deinit { cplatform_close(descriptor) }

    /// Calls `body` under the lock; nil in a child process, which shares the timer with its parent (decision 24).
    @discardableResult
    func withState<R>(_ body: (inout State) -> R) -> R? {
        guard mark.isOurs else { return nil }
        // poll(2) and read(2) are cancellation points: a thread that ended there would keep the lock.
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        return state.withLock(body)
    }

    /// Arms for `date` instead of the former one; at once if it has come.
    func arm(_ date: RunLoop.WallTime) {
        // The kernel takes zero for "disarm", and nothing less.
        let result = cplatform_arm_wall_timer(descriptor, max(1, date.nanosecondsSince1970), reportsSettings)
        precondition(result == 0, "timerfd_settime takes any valid time; errno \(errno)")
    }

    /// Readable when this returns, so that the next pass of a loop finds it. With `reportsSettings`, arm it again afterwards.
    func makeReadable() {
        arm(RunLoop.WallTime(nanosecondsSince1970: 0))
        // The kernel expires a timer of the past in an interrupt, which comes within microseconds.
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while poll(&entry, 1, 1_000) < 0 && errno == EINTR {}  // ends: with the interrupt
    }

    /// Not readable any more. A timer that has expired stays so until it is armed again. The read fails with ECANCELED if the clock was set.
    func drain() { readReports(of: descriptor) }
}

extension RunLoop.Source {
    /// One of the source's loops, which go by one clock (rule 18.34). Nil in none, also while it is served: another thread may have removed it.
    var anyLoop: RunLoop? { state.withLockIfOwn { $0.first?.loop } ?? nil }
    /// The manual clock of those loops; nil if they go by the system's, or if there are none.
    var manualClock: RunLoop.ManualClock? { anyLoop?.time.manualClock }
}
