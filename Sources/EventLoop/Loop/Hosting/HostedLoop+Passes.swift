// What a host in this package does beside driving a loop: it reports its passes to those who observe the loop's callouts, and makes a step by
// itself when its own thread has queued a job.

extension RunLoop.HostedLoop {
    /// Whether somebody observes the loop's callouts, so that the host should report its passes. On the owning thread; changes in `step()`.
    package var isObserved: Bool { !hosted.isOver && loop.isObserved }

    /// The host has slept, and begins to work. On the owning thread, outside `step()`. Does nothing if nobody observes the loop.
    package func hostBeginsPass(label: String) {
        if !isObserved || loop.runs.depth > 0 || loop.owned.hosting.pass != nil { return }
        loop.owned.hosting.pass = loop.openCallout(CalloutItem(kind: .hostedLibrary, label: label), hosted.mode)
    }

    /// The host is about to sleep, or reports no more passes. On the owning thread. Does nothing if no pass was begun.
    package func hostEndsPass() {
        guard let span = loop.owned.hosting.pass else { return }
        loop.owned.hosting.pass = nil
        loop.closeCallout(span, isCalled: true)
    }

    /// What the loop calls when its own thread queues a job between two steps: a task that a handler of the host resumes, for example. If it
    /// returns true, the host calls `step()` before it sleeps, and `descriptor` does not become readable for the job: no way through the
    /// kernel. It must return false now and then, or the host's descriptors starve. On the owning thread; nil removes it.
    package func setStepRequest(_ body: (() -> Bool)?) {
        if !hosted.isOver { hosted.stepRequest = body }
    }
}
