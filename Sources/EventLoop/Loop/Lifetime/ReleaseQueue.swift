/// A value that the loop's thread releases. Another thread may hold the object itself longer.
protocol LoopReleased: AnyObject, Sendable {
    /// Called on the loop's thread, or, when the loop has ended, on the thread that drops the object.
    func release()
}

/// Values that the loop's thread must release. Under the loop's lock.
struct ReleaseQueue: ~Copyable, Sendable {
    private var values = Deque<any LoopReleased>()
    /// The loop's thread releases nothing more.
    private var isClosed = false
    /// A perform that releases them is queued, or was refused. There is one at a time, however many values come.
    private var isAwaited = false

    /// `isFirst`: a perform must be queued.
    mutating func append(_ value: any LoopReleased) -> (isAccepted: Bool, isFirst: Bool) {
        if isClosed { return (false, false) }
        values.append(value)
        defer { isAwaited = true }
        return (true, !isAwaited)
    }

    /// The perform begins, with so many values. If there are several, another one must be queued, for a run inside the first release.
    mutating func begin() -> Int {
        isAwaited = values.count > 1
        return values.count
    }

    mutating func takeFirst() -> (any LoopReleased)? { values.isEmpty ? nil : values.popFirst() }

    /// Accepts nothing more if everything was taken. True if so.
    mutating func closeIfEmpty() -> Bool {
        isClosed = values.isEmpty
        return isClosed
    }
}

extension RunLoop {
    /// Has the loop's thread release a value: in its next pass in a common mode, or, when it accepts no performs any more, as it ends.
    /// False when the thread has made its last callout. Thread-safe.
    func releaseOnThread(_ value: any LoopReleased) -> Bool {
        guard let (isAccepted, isFirst) = shared.withLockIfOwn({ $0.released.append(value) }) else { return false }
        // One perform releases all. If it is refused or dropped, `releaseLast` releases them.
        if isFirst { releaseSoon() }
        return isAccepted
    }

    /// Owning thread only. Releases what was dropped before it began, one at a time from the queue, so that a run nested in one of the releases
    /// makes the others.
    private func releaseQueued() { /* DOES CALLOUT */
        let count = shared.withLock { $0.released.begin() }
        if count > 1 { releaseSoon() }
        for _ in 0..<count {
            guard let value = shared.withLock({ $0.released.takeFirst() }) else { return }
            value.release()
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
