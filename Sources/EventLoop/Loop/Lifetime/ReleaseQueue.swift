/// Releases of values, which the loop's thread must make. Under the loop's lock.
struct ReleaseQueue: ~Copyable, Sendable {
    private var releases = Deque<@Sendable () -> Void>()
    /// The loop's thread releases nothing more.
    private var isClosed = false
    /// A perform that releases them is queued, or was refused. There is one at a time, however many values come.
    private var isAwaited = false

    /// True if a perform must be queued.
    mutating func append(_ release: @escaping @Sendable () -> Void) -> Bool {
        if isClosed { return false }
        releases.append(release)
        defer { isAwaited = true }
        return !isAwaited
    }

    /// The perform begins, with so many values. If there are several, another one must be queued, for a run inside the first release.
    mutating func begin() -> Int {
        isAwaited = releases.count > 1
        return releases.count
    }

    mutating func takeFirst() -> (@Sendable () -> Void)? { releases.isEmpty ? nil : releases.popFirst() }

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
        if shared.withLockIfOwn({ $0.released.append(release) }) ?? false { releaseSoon() }
    }

    /// Owning thread only. Releases what was dropped before it began, one at a time from the queue, so that a run nested in one of the releases
    /// makes the others.
    private func releaseQueued() { /* DOES CALLOUT */
        let count = shared.withLock { $0.released.begin() }
        if count > 1 { releaseSoon() }
        for _ in 0..<count {
            guard let release = shared.withLock({ $0.released.takeFirst() }) else { return }
            release()
        }
    }

    /// In the next pass, also of a nested run. A loop that refuses it releases the values as it ends.
    private func releaseSoon() { performIfPossible { RunLoop.threadsLoop().releaseQueued() } }

    /// The last callouts of the loop. Owning thread only, while its isolation checks still pass.
    func releaseLast() { /* DOES CALLOUT */
        var isLast = false
        while !isLast {  // ends: a thread that drops values without end finds the lock free in between, as with any queue of the loop
            releaseQueued()
            isLast = shared.withLock { $0.released.closeIfEmpty() }
        }
    }
}
