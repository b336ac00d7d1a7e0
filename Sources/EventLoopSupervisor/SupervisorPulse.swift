// The thread that sends a service manager signs of life while all watched loops make progress.
//
// It is a thread of its own, and not a timer on one of the loops: it wakes no loop that sleeps, it does not depend on the modes in which a
// loop runs, it looks again soon when a loop is late, and it outlives every loop (decision 39).
//
// Lifecycle: the first watched loop starts the thread. It ends when the last watched loop has ended or is not watched any more, and with
// the supervisor. The thread retains this object, and this object retains the watched loops until they end.

internal import CPlatform
internal import EventLoop

/// Thread-safe.
final class SupervisorPulse: Sendable {
    private struct State {
        var check = ProgressCheck()
        /// Opened to end the thread; nil if there is no thread.
        var end: Latch?
    }

    private let state = LoopLock(State())
    private let mark = ProcessMark()

    func watch(_ loops: [RunLoop], every interval: Duration, _ notifier: SupervisorNotifier) throws(RunLoop.SupervisorError) {
        if !mark.isOurs || loops.isEmpty { return }
        let end = Latch()
        let code = state.withLock { state -> Int32 in
            if state.end == nil {
                // Under the lock, so that another call does not rely on a thread that cannot be started.
                let failure = NativeThread.start { [self] in
                    cplatform_name_this_thread("supervisor")
                    blockSignals()
                    send(every: interval, notifier, until: end)
                }
                if failure != 0 { return failure }
                state.end = end
            }
            for loop in loops { state.check.add(loop) }
            return 0
        }
        if code != 0 { throw .system(operation: "starting the thread of the supervisor", errno: code) }
    }

    func stopWatching(_ loop: RunLoop) {
        if mark.isOurs { state.withLock { $0.check.remove(loop) } }
    }

    /// Ends the thread.
    func end() {
        guard mark.isOurs else { return }
        let (former, end) = state.withLock { state in
            defer { state = State() }
            return (state.check, state.end)
        }
        end?.open()
        // Its loops are released outside the lock.
        withExtendedLifetime(former) {}
    }

    /// For tests.
    var hasThread: Bool { state.withLock { $0.end != nil } }

    private func send(every interval: Duration, _ notifier: SupervisorNotifier, until end: Latch) {
        // sd_watchdog_enabled(3) recommends half of the time.
        let half = max(interval / 2, .milliseconds(1))
        // After a check that found a loop late. So a callout may take nearly the whole time.
        let soon = max(interval / 16, .milliseconds(1))
        var next = RunLoop.Instant.now.advanced(by: soon)
        while !end.wait(until: next) {  // ends: when the latch opens, or without loops
            guard let isAlive = look(end) else { return }
            let isSent = isAlive && (try? notifier.send(["WATCHDOG=1"], waits: false)) != nil
            if isSent { state.withLock { if $0.end === end { $0.check.begin() } } }
            next = RunLoop.Instant.now.advanced(by: isSent ? half : soon)
        }
    }

    /// Whether all loops have made progress; nil if the thread must end.
    private func look(_ end: Latch) -> Bool? {
        let (ended, isAlive) = state.withLock { state -> ([RunLoop], Bool?) in
            guard state.end === end else { return ([], nil) }
            let ended = state.check.removeEndedLoops()
            if !state.check.isEmpty { return (ended, state.check.look()) }
            state.end = nil
            return (ended, nil)
        }
        withExtendedLifetime(ended) {}
        return isAlive
    }
}
