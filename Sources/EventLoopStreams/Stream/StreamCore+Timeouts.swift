// Timeouts. A byte that moves stores an instant; it moves no timer. The timer looks at the instants when it fires, and fires again if they
// have moved.

import EventLoop

/// Guarded by the stream's lock. Made with the first time limit: most streams have none before they end.
final class Timeouts {
    /// Made with the first date.
    var timer: RunLoop.Timer?
    /// When the timer fires, in nanoseconds of the loop's time.
    var date = Int64.max
    /// As in the options, until the stream is closing.
    var writeTimeout: Duration?
    /// The transport was asked again since `waitingSince`, and has taken what the kernel had room for, whatever the peer does.
    var isToppedUp = false
    /// When the last byte moved.
    var idleSince: Int64 = 0
    /// When the last byte came, or reading began again.
    var receivedSince: Int64 = 0
    /// Since when the peer has not taken a byte. Means something while bytes wait.
    var waitingSince: Int64 = 0
    /// When the handshake of a layer must be over.
    var handshakeBy = Int64.max
    /// When the stream is closed, whatever waits.
    var closeBy = Int64.max
    /// Bytes that were dropped while lingering.
    var dropped: UInt64 = 0

    init(writeTimeout: Duration? = nil) { self.writeTimeout = writeTimeout }

    /// Nil if the options have no timeout.
    convenience init?(_ options: ByteStream.Options) {
        if options.idleTimeout == nil && options.writeTimeout == nil && options.receiveTimeout == nil { return nil }
        self.init(writeTimeout: options.writeTimeout)
    }
}

extension StreamCore {
    /// The present in the loop's time.
    var now: RunLoop.Instant { loop.clock.now }

    func startTimeoutsLocked(_ actions: inout StreamActions) {
        guard let timeouts = locked.timeouts else { return }
        timeouts.idleSince = now.nanoseconds
        timeouts.receivedSince = timeouts.idleSince
        armLocked(&actions)
    }

    func madeTimeoutsLocked() -> Timeouts {
        if let timeouts = locked.timeouts { return timeouts }
        let made = Timeouts()
        locked.timeouts = made
        return made
    }

    /// A byte has moved.
    @inline(__always) func noteActivityLocked() { if locked.timeouts != nil { noteActivityWithTimeoutsLocked() } }

    @inline(never)
    private func noteActivityWithTimeoutsLocked() { if options.idleTimeout != nil { locked.timeouts?.idleSince = now.nanoseconds } }

    /// A byte has come.
    @inline(__always) func noteReceivedLocked() {
        if locked.timeouts != nil { noteReceivedWithTimeoutsLocked() }
    }

    @inline(never) private func noteReceivedWithTimeoutsLocked() {
        noteActivityWithTimeoutsLocked()
        if options.receiveTimeout != nil { locked.timeouts?.receivedSince = now.nanoseconds }
    }

    /// Reading has begun again. The timer may have fired while it had stopped.
    @inline(never) func restartReceiveTimeoutLocked(_ actions: inout StreamActions) {
        if options.receiveTimeout == nil { return }
        locked.timeouts?.receivedSince = now.nanoseconds
        armLocked(&actions)
    }

    /// From now on the peer is expected to take bytes.
    @inline(__always) func startWaitingLocked() {
        if locked.timeouts != nil { startWaitingWithTimeoutsLocked() }
    }

    @inline(never) private func startWaitingWithTimeoutsLocked() {
        guard let timeouts = locked.timeouts, timeouts.writeTimeout != nil else { return }
        (timeouts.waitingSince, timeouts.isToppedUp) = (now.nanoseconds, false)
    }

    var lastTakenLocked: RunLoop.Instant? {
        guard let timeouts = locked.timeouts, timeouts.writeTimeout != nil, timeouts.waitingSince > 0 else { return nil }
        return RunLoop.Instant(nanoseconds: timeouts.waitingSince)
    }

    private func date(_ start: Int64, _ limit: Duration?) -> Int64 {
        limit.map { RunLoop.Instant(nanoseconds: start).advanced(by: $0).nanoseconds } ?? .max
    }

    private func idleDateLocked(_ timeouts: Timeouts) -> Int64 {
        locked.phase == .open ? date(timeouts.idleSince, options.idleTimeout) : .max
    }
    private func receiveDateLocked(_ timeouts: Timeouts) -> Int64 {
        // While the stream lingers, only `closeBy` counts. Of one that closes when everything is sent, nobody wants what comes.
        locked.phase == .open && !locked.sending.closesWhenFinished && canReceiveLocked
            ? date(timeouts.receivedSince, options.receiveTimeout) : .max
    }
    private func writeDateLocked(_ timeouts: Timeouts) -> Int64 {
        locked.phase == .open && (!locked.sending.isEmpty || locked.sending.isLayerBlocked)
            ? date(timeouts.waitingSince, timeouts.writeTimeout) : .max
    }
    /// When the transport is asked again without counting what it takes: a kernel that has refused bytes has room for some a moment later, which
    /// says nothing about the peer.
    private func topUpDateLocked(_ timeouts: Timeouts) -> Int64 {
        locked.phase == .open && locked.sending.isBlocked && !locked.sending.isEmpty && !timeouts.isToppedUp
            ? date(timeouts.waitingSince, timeouts.writeTimeout.map { $0 / 16 }) : .max
    }

    /// Has the timer fire when the next timeout may be over.
    func armLocked(_ actions: inout StreamActions) {
        guard let timeouts = locked.timeouts, locked.phase != .closing, locked.phase != .closed else { return }
        let date = min(
            idleDateLocked(timeouts), receiveDateLocked(timeouts), writeDateLocked(timeouts), topUpDateLocked(timeouts),
            timeouts.handshakeBy, timeouts.closeBy)
        if date >= timeouts.date { return }
        timeouts.date = date
        actions.armsTimer = true
    }

    /// Sets the timer. Outside the lock.
    func armTimer() {
        if setTimer() { return }
        // The transport's end invalidates it, which breaks the cycle.
        let timer = RunLoop.Timer.onDemand(label: "timeouts of a stream") { [self] _ in timerDidFire() }
        // Added first and stored then: if the stream ends in between, the loop would warn of a timer that is invalid already.
        loop.add(timer, forMode: mode)
        let isMine = withLock {
            if locked.timeouts?.timer == nil && locked.phase != .closing && locked.phase != .closed { locked.timeouts?.timer = timer }
            return locked.timeouts?.timer === timer
        }
        if !isMine { timer.invalidate() }
        _ = setTimer()
    }

    /// False if there is no timer yet.
    private func setTimer() -> Bool {
        withLock {
            if locked.phase == .closing || locked.phase == .closed { return true }
            guard let timeouts = locked.timeouts, let timer = timeouts.timer else { return false }
            // Under the lock, so that of two threads the one with the earlier date does not lose.
            timer.nextFire = RunLoop.Instant(nanoseconds: timeouts.date)
            return true
        }
    }

    private func timerDidFire() { /* DOES CALLOUT */
        // Timers fire before descriptors are served. If the loop was busy for so long, the peer may have sent something.
        let receivesFirst = withLock {
            locked.timeouts?.date = .max
            return isLateToReceiveLocked
        }
        if !receivesFirst { return checkTimeouts() }
        // Not inside this call: a handler may run its loop, in which the timer has to fire again.
        let body: @Sendable () -> Void = {
            self.change { self.armLocked(&$0) }
            if self.withLock({ self.isLateToReceiveLocked }) { self.receive() }
            self.checkTimeouts()
        }
        _ = mode == .common ? loop.perform(body) : loop.perform(inModes: [mode], body)
    }

    private var isLateToReceiveLocked: Bool {
        guard let timeouts = locked.timeouts, canReceiveLocked else { return false }
        return min(idleDateLocked(timeouts), receiveDateLocked(timeouts)) <= now.nanoseconds
    }

    private func checkTimeouts() { /* DOES CALLOUT */
        change { actions in
            guard let timeouts = locked.timeouts else { return }
            timeouts.date = .max
            let now = now.nanoseconds
            if timeouts.closeBy <= now {
                setEndLocked(.timedOut)
                return closeLocked(&actions)
            }
            if topUpDateLocked(timeouts) <= now, writeDateLocked(timeouts) > now {
                let since = timeouts.waitingSince
                locked.sending.isBlocked = false
                flushLocked(&actions)
                if !locked.sending.isEmpty { (timeouts.waitingSince, timeouts.isToppedUp) = (since, true) }
            }
            if min(writeDateLocked(timeouts), idleDateLocked(timeouts)) <= now {
                // A socket reports room only when much of its buffer is free. A slow peer may have made less, and is not to be ended.
                locked.sending.isBlocked = false
                flushLocked(&actions)
            }
            let date = min(
                idleDateLocked(timeouts), receiveDateLocked(timeouts), writeDateLocked(timeouts), timeouts.handshakeBy)
            if date <= now {
                sayGoodbyeLocked(&actions)
                return endLocked(.timedOut, &actions)
            }
            armLocked(&actions)
        }
    }
}
