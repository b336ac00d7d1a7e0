// Calls at the end of a pass, for other libraries of the package: a stream sends what tasks have written in the pass.

/// Called at the end of a pass, because it has asked for that during the pass.
package protocol PassEndListener: AnyObject, Sendable {
    /// On the loop's thread. May call out.
    func passWillEnd() /* DOES CALLOUT */
}

extension RunLoop {
    /// Has `listener` called once: when the pass in progress ends, also by the thread's end, or before it sleeps. False when the thread is in no pass: then nobody is
    /// called. Owning thread only.
    package func callAtEndOfPass(_ listener: any PassEndListener) -> Bool {
        if runs.depth == 0 { return false }
        owned.passEnds.append(listener)
        owned.pending.formUnion(.passEnd)
        return true
    }

    @inline(never) func callPassEndListeners() { /* DOES CALLOUT */
        owned.pending.subtract(.passEnd)
        // One at a time, so that a nested run calls those that are left. Ends: a listener asks again only when a task has written again, and no
        // task runs here.
        while !owned.passEnds.isEmpty { owned.passEnds.popFirst().passWillEnd() }
    }
}
