import Synchronization

extension RunLoop {
    /// Lets a loop that is not ours (GLib's, Qt's, libuv's, Dispatch's, a game's) drive this one: from now on nobody runs `mode` but `step()`.
    ///
    /// While a loop is hosted, `step()` serves what a run of `mode` serves, for `RunLoop.main` the main queue too. Handlers may run nested runs in
    /// any mode; an outermost run of the owner in `mode` is a precondition failure. Changes that the owner makes between two steps (dates, items,
    /// events inside `withEventBase`) take effect on `descriptor` at once; a libevent call outside `withEventBase` takes effect with the next step.
    /// `stop(sticky: true)`, `wakeUp()` and posts from any thread make `descriptor` readable. Here signaled sources and queued blocks do, too.
    ///
    /// On the owning thread. A mode can be hosted once at a time. Throws `SourceError.system` if the kernel refuses: if there are no
    /// descriptors left, or with ENOTSUP if libevent waits with something that has no descriptor of its own (`EVENT_NOEPOLL=1`; macOS).
    public func hosted(mode: Mode = .default) throws(SourceError) -> HostedLoop {
        preconditionOnLoop("hosted(mode:)")
        precondition(mode != .common, ".common stands for several modes; name the one to be hosted")
        precondition(!hasEnded.load(ordering: .relaxed), "this run loop has ended; host it before its thread exits")
        return HostedLoop(self, try beginHosting(mode))
    }

    /// A loop that is driven by a host through one descriptor. On the owning thread only.
    ///
    /// After the thread's end, `descriptor` is open but quiet, and `step()` returns `.finished`. The last release on the owning thread invalidates.
    public final class HostedLoop {
        let loop: RunLoop
        let hosted: HostedMode

        init(_ loop: RunLoop, _ hosted: HostedMode) { (self.loop, self.hosted) = (loop, hosted) }
        deinit { if !hosted.isOver && loop.isCurrent { loop.endHosting(hosted) } }
        /// Readable whenever `step()` has something to do: a source, a post, a wake-up, a due timer, an event of a C library. Level-triggered;
        /// the host watches it and does nothing else with it. -1 after `invalidate()`.
        public var descriptor: Int32 { hosted.descriptor }

        /// One pass that does not sleep, as `run(mode:for: .zero)`. Afterwards the loop counts as asleep, and `descriptor` says when to call again.
        ///
        /// `.stopped` without a pass if the loop's `RunLoopThread` was stopped; `descriptor` may stay readable, so the host must end: the thread
        /// waits for it. May be called from a handler of the loop. If a handler runs the host's loop itself (a modal dialog), it calls `step()`
        /// first: from then on `descriptor` is right inside the handler, too.
        @discardableResult
        public func step() -> RunResult { /* DOES CALLOUT */
            if loop.hasEnded.load(ordering: .acquiring) { return .finished }
            loop.preconditionOnLoop("HostedLoop.step")
            precondition(
                !hosted.isOver, "this HostedLoop was invalidated, so its loop is its thread's again; run the loop, or host it again")
            return loop.step(hosted)
        }

        /// When `step()` will have something to do by itself (our timers and libevent's timeouts), in the loop's own time; nil for never. For hosts
        /// that prefer a timeout to a readable descriptor. Beside C libraries, linear in the number of their events.
        public var nextDeadline: Instant? {
            if hosted.isOver || loop.hasEnded.load(ordering: .acquiring) { return nil }
            loop.preconditionOnLoop("HostedLoop.nextDeadline")
            return loop.nextDeadline(of: hosted)
        }

        /// The loop is its thread's again, and may be run. Closes `descriptor`, so the host must have stopped watching it. No-op if called before.
        public func invalidate() {
            if hosted.isOver || !loop.isOurs { return hosted.closeSet() }
            loop.preconditionOnLoop("HostedLoop.invalidate")
            loop.endHosting(hosted)
        }
    }
}

// MARK: - For hosts in this package: they report their passes to observers of the callouts, and step by themselves for jobs of their own thread
extension RunLoop.HostedLoop {
    /// Whether somebody observes the loop's callouts, so that the host should report its passes. On the owning thread; changes in `step()`.
    package var isObserved: Bool { !hosted.isOver && loop.isObserved }

    /// The host has slept, and begins to work. On the owning thread, outside `step()`. No-op if nobody observes the loop.
    package func hostBeginsPass(label: String) {
        if !isObserved || loop.runs.depth > 0 || loop.owned.hosting.pass != nil { return }
        loop.owned.hosting.pass = loop.openCallout(CalloutItem(kind: .hostedLibrary, label: label), hosted.mode)
    }

    /// The host is about to sleep, or reports no more passes. On the owning thread. No-op if no pass was begun.
    package func hostEndsPass() { loop.closeSpan(loop.owned.hosting.pass.take()) }
    /// What the loop calls when its own thread queues a job between two steps. If it returns true, the host calls `step()` before it sleeps, and
    /// `descriptor` does not become readable for the job. It must return false now and then, or the host's descriptors starve. Owning thread only.
    package func setStepRequest(_ body: (() -> Bool)?) { if !hosted.isOver { hosted.stepRequest = body } }
}
