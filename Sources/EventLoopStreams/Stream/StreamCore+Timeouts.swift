// Timeouts. A byte that moves stores an instant; it moves no timer. The timer looks at the instants when it fires, and fires again if they
// have moved.

import EventLoop

struct Timeouts {
    /// Made with the first date.
    var timer: RunLoop.Timer?
    /// When the timer fires, in nanoseconds of the loop's time.
    var date = Int64.max
    /// As in the options, until the stream is closing.
    var writeTimeout: Duration?
    /// When the last byte moved.
    var idleSince: Int64 = 0
    /// Since when the peer has not taken a byte. Means something while bytes wait.
    var waitingSince: Int64 = 0
    /// When the handshake of a layer must be over.
    var handshakeBy = Int64.max
    /// When the stream is closed, whatever waits.
    var closeBy = Int64.max
    /// Bytes that were dropped while lingering.
    var dropped: UInt64 = 0
}

extension StreamCore {
    /// The present in the loop's time.
    var now: RunLoop.Instant { loop.clock.now }

    func startTimeoutsLocked(_ actions: inout StreamActions) {
        if options.idleTimeout == nil && options.writeTimeout == nil { return }
        timeouts.idleSince = now.nanoseconds
        armLocked(&actions)
    }

    /// A byte has moved.
    @inline(__always)
    func noteActivityLocked() { if options.idleTimeout != nil { timeouts.idleSince = now.nanoseconds } }

    /// From now on the peer is expected to take bytes.
    @inline(__always)
    func startWaitingLocked() { if timeouts.writeTimeout != nil { timeouts.waitingSince = now.nanoseconds } }

    private func date(_ start: Int64, _ limit: Duration?) -> Int64 {
        limit.map { RunLoop.Instant(nanoseconds: start).advanced(by: $0).nanoseconds } ?? .max
    }

    private var idleDateLocked: Int64 { phase == .open ? date(timeouts.idleSince, options.idleTimeout) : .max }
    private var writeDateLocked: Int64 { phase == .open && !sending.isEmpty ? date(timeouts.waitingSince, timeouts.writeTimeout) : .max }

    /// Has the timer fire when the next timeout may be over.
    func armLocked(_ actions: inout StreamActions) {
        let date = min(idleDateLocked, writeDateLocked, timeouts.handshakeBy, timeouts.closeBy)
        if date >= timeouts.date || phase == .closing || phase == .closed { return }
        timeouts.date = date
        actions.armsTimer = true
    }

    /// Sets the timer. Outside the lock.
    func armTimer() {
        if setTimer() { return }
        let timer = RunLoop.Timer.onDemand(label: "timeouts of a stream") { [weak self] _ in self?.timerDidFire() }
        // Added first and stored then: if the stream ends in between, the loop would warn of a timer that is invalid already.
        loop.add(timer, forMode: mode)
        let isMine = withLock {
            if timeouts.timer == nil && phase != .closing && phase != .closed { timeouts.timer = timer }
            return timeouts.timer === timer
        }
        if !isMine { timer.invalidate() }
        _ = setTimer()
    }

    /// False if there is no timer yet.
    private func setTimer() -> Bool {
        withLock {
            if phase == .closing || phase == .closed { return true }
            guard let timer = timeouts.timer else { return false }
            // Under the lock, so that of two threads the one with the earlier date does not lose.
            timer.nextFire = RunLoop.Instant(nanoseconds: timeouts.date)
            return true
        }
    }

    private func timerDidFire() { /* DOES CALLOUT */
        // Timers fire before descriptors are served. If the loop was busy for so long, the peer may have sent something.
        if withLock({ idleDateLocked <= now.nanoseconds && canReceiveLocked }) { receive() }
        change { actions in
            timeouts.date = .max
            let now = now.nanoseconds
            if timeouts.closeBy <= now {
                setEndLocked(.timedOut)
                return closeLocked(&actions)
            }
            if min(writeDateLocked, idleDateLocked) <= now {
                // A socket reports room only when much of its buffer is free. A slow peer may have made less, and is not to be ended.
                sending.isBlocked = false
                flushLocked(&actions)
            }
            if idleDateLocked <= now || writeDateLocked <= now || timeouts.handshakeBy <= now { return endLocked(.timedOut, &actions) }
            armLocked(&actions)
        }
    }
}
