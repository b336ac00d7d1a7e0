/// Releases of values, which the loop's thread must make. Under the loop's lock.
struct ReleaseQueue: Sendable {
    private var releases: [@Sendable () -> Void] = []
    /// The loop's thread releases nothing more.
    private var isClosed = false

    /// True if it is the first, for which a perform must be queued.
    mutating func append(_ release: @escaping @Sendable () -> Void) -> Bool {
        if isClosed { return false }
        releases.append(release)
        return releases.count == 1
    }

    mutating func takeAll() -> [@Sendable () -> Void] {
        defer { releases = [] }
        return releases
    }

    /// Accepts nothing more if everything was taken. True if so.
    mutating func closeIfEmpty() -> Bool {
        isClosed = releases.isEmpty
        return isClosed
    }
}

extension RunLoop {
    /// Has the loop's thread call `release`, which releases a value: in its next pass in a common mode, or, when it accepts no performs any more, as
    /// it ends. If the thread has made its last callout, the caller's thread releases the closure with the value. Thread-safe.
    func releaseOnThread(_ release: @escaping @Sendable () -> Void) {
        // One perform releases all. If it is refused or dropped, `releaseLast` releases them.
        guard shared.withLockIfOwn({ $0.released.append(release) }) ?? false else { return }
        performIfPossible { RunLoop.threadsLoop().releaseQueued() }
    }

    /// Owning thread only. As last callouts, so that a run nested in one of the releases makes the others.
    private func releaseQueued() { /* DOES CALLOUT */
        for release in shared.withLock({ $0.released.takeAll() }) { finishLater(.call(LaterCall(release))) }
        finishItems()
    }

    /// The last callouts of the loop. Owning thread only, while its isolation checks still pass.
    func releaseLast() { /* DOES CALLOUT */
        var isLast = false
        while !isLast {  // ends: a thread that drops values without end finds the lock free in between, as with any queue of the loop
            releaseQueued()
            isLast = shared.withLock { $0.released.closeIfEmpty() }
        }
    }
}
