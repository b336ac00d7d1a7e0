extension RunLoop {
    /// Performs `body` once, `delay` from now in the loop's time, in any of `modes`: a timer, not a source.
    ///
    /// A delay of zero or less still waits for the next pass; equal dates are performed in the order they were asked for. `target` is kept until
    /// then, and names the request to `cancelDelayedPerforms(target:)`. On an ended loop, and without modes, the token is invalid. Thread-safe.
    @discardableResult
    public func perform(
        after delay: Duration, inModes modes: [Mode] = Mode.onlyDefault, target: AnyObject? = nil, file: StaticString = #fileID,
        line: UInt = #line, _ body: @escaping @Sendable () -> Void
    ) -> DelayedPerform {
        let targetID = target.map { ObjectIdentifier($0) }
        nonisolated(unsafe) let kept = target  // SAFETY: the object is never used, only kept; reference counts are atomic
        let timer = Timer(
            date: now().advanced(by: max(delay, .zero)).nanoseconds, endsWithLoop: true, isPerform: true, label: "delayed perform",
            site: CreationSite(file, line)
        ) { timer in
            if let targetID { LoopLifetime.withCurrent { $0.forgetDelayed(timer, of: targetID) } }
            withExtendedLifetime(kept) { body() }
        }
        let token = DelayedPerform(self, timer, targetID)
        if let targetID { shared.withLock { $0.delayed[targetID, default: []].append(timer) } }
        if !modes.reduce(false, { isAdded, mode in add(timer, forMode: mode) || isAdded }) { token.cancel() }
        return token
    }

    /// Cancels the delayed performs of this loop that were asked for with `target`. Thread-safe. See `cancelPreviousPerformRequestsWithTarget:`.
    public func cancelDelayedPerforms(target: AnyObject) {
        let timers = shared.withLockIfOwn { $0.delayed.removeValue(forKey: ObjectIdentifier(target)) } ?? nil
        for timer in timers ?? [] { timer.invalidate() }
    }

    /// The caller holds the timer.
    fileprivate func forgetDelayed(_ timer: Timer, of target: ObjectIdentifier) {
        shared.withLockIfOwn { shared in
            shared.delayed[target]?.removeAll { $0 === timer }
            if shared.delayed[target]?.isEmpty == true { shared.delayed[target] = nil }
        }
    }

    /// The token of a delayed perform.
    public final class DelayedPerform: Sendable {
        private let loop: RunLoop
        private let timer: Timer  // its handler holds the target
        private let targetID: ObjectIdentifier?

        fileprivate init(_ loop: RunLoop, _ timer: Timer, _ targetID: ObjectIdentifier?) {
            (self.loop, self.timer, self.targetID) = (loop, timer, targetID)
        }

        /// False once performed, cancelled, or refused by an ended loop. Thread-safe.
        public var isValid: Bool { timer.isValid }
        /// Withdraws the perform if it has not begun. Thread-safe.
        public func cancel() {
            if let targetID { loop.forgetDelayed(timer, of: targetID) }
            timer.invalidate()
        }
    }
}
