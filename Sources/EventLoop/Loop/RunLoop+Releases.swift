// Values that must be released on the loop's thread, whichever thread drops them (`LoopBound`).

/// What the loop's thread releases. Another thread may hold the object itself longer.
protocol LoopReleased: AnyObject, Sendable {
    /// On the loop's thread, or, when the loop has ended, by whoever drops the object.
    func release()
}

extension RunLoop {
    /// Has the loop's thread release a value: in its next pass in a common mode, or, when it accepts no performs any more, as it ends.
    /// False when the thread has made its last callout. Thread-safe.
    func releaseOnThread(_ value: any LoopReleased) -> Bool {
        let (isAccepted, isFirst) = shared.withLock { shared in
            if shared.releasesElsewhere { return (false, false) }
            shared.released.append(value)
            return (true, shared.released.count == 1)
        }
        // One perform releases all. If it is refused or dropped, `releaseLast` releases them.
        if isFirst { perform { RunLoop.threadsLoop().releaseQueued() } }
        return isAccepted
    }

    /// Owning thread only.
    private func releaseQueued() { /* DOES CALLOUT */
        let values = shared.withLock { shared in
            defer { shared.released = [] }
            return shared.released
        }
        for value in values { value.release() }
    }

    /// The last callouts of the loop. Owning thread only, while its isolation checks still pass.
    func releaseLast() { /* DOES CALLOUT */
        var isLast = false
        while !isLast {  // ends: a thread that drops values without end finds the lock free in between, as with any queue of the loop
            releaseQueued()
            isLast = shared.withLock { shared in
                shared.releasesElsewhere = shared.released.isEmpty
                return shared.releasesElsewhere
            }
        }
    }
}
