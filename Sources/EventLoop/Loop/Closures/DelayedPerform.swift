extension RunLoop {
    /// Performs `body` once, `delay` from now in the loop's time, in any of `modes`: a timer, not a source.
    ///
    /// A delay of zero or less still waits for the next pass; equal dates are performed in the order they were asked for. `target` is
    /// kept until then, and names the request to `cancelDelayedPerforms(target:)`. On an ended loop, and with an empty list of modes, the
    /// token is invalid from the start. Any thread may ask.
    @discardableResult
    public func perform(
        after delay: Duration, inModes modes: [Mode] = Mode.onlyDefault, target: AnyObject? = nil, file: StaticString = #fileID,
        line: UInt = #line, _ body: @escaping @Sendable () -> Void
    ) -> DelayedPerform {
        let token = DelayedPerform(loop: self, target: target)
        let timer = Timer(
            date: now().advanced(by: max(delay, .zero)).nanoseconds, interval: 0, tolerance: 0, order: 0, endsWithLoop: true,
            recordedKind: .perform, label: "delayed perform", site: CreationSite(file, line)
        ) { [weak token] _ in
            token?.forget()
            body()
        }
        token.timer.withLock { $0 = timer }
        if let target { shared.withLock { $0.delayed.add(token, of: target) } }
        var isAdded = false
        for mode in modes where add(timer, forMode: mode) { isAdded = true }
        if !isAdded { token.cancel() }
        return token
    }

    /// Cancels the delayed performs of this loop that were asked for with `target`. Thread-safe. See
    /// `cancelPreviousPerformRequestsWithTarget:`.
    public func cancelDelayedPerforms(target: AnyObject) {
        let tokens = shared.withLockIfOwn { $0.delayed.takeAll(of: target) }
        for token in tokens ?? [] { token.cancel() }
    }

    /// The token of a delayed perform.
    public final class DelayedPerform: Sendable {
        private let loop: RunLoop
        /// Kept alive until the perform; never used otherwise.
        private let target: LoopLock<AnyObject?>
        private let targetID: ObjectIdentifier?
        let timer = LoopLock<Timer?>(nil)

        init(loop: RunLoop, target: AnyObject?) {
            self.loop = loop
            targetID = target.map { ObjectIdentifier($0) }
            nonisolated(unsafe) let kept = target  // SAFETY: the object is never used, only kept; reference counts are atomic
            self.target = LoopLock(kept)
        }

        /// False once performed, cancelled, or refused by an ended loop. Thread-safe.
        public var isValid: Bool { timer.withLock { $0?.isValid ?? false } }

        /// Withdraws the perform if it has not begun. Thread-safe.
        public func cancel() {
            timer.withLockIfOwn { $0 }??.invalidate()
            forget()
        }

        /// Leaves the loop's list, and releases the target.
        func forget() {
            if let targetID { loop.shared.withLockIfOwn { $0.delayed.remove(self, of: targetID) } }
            var released: AnyObject?
            target.withLockIfOwn { swap(&$0, &released) }
            withExtendedLifetime(released) {}  // released outside the lock: its deinit is the user's
        }
    }
}

/// Delayed performs by their targets. Under the loop's lock.
struct DelayedPerforms: Sendable {
    private var performs: [ObjectIdentifier: [(number: UInt64, token: RunLoop.DelayedPerform)]] = [:]
    private var lastNumber: UInt64 = 0

    mutating func add(_ token: RunLoop.DelayedPerform, of target: AnyObject) {
        lastNumber += 1
        performs[ObjectIdentifier(target), default: []].append((lastNumber, token))
    }

    mutating func remove(_ token: RunLoop.DelayedPerform, of target: ObjectIdentifier) {
        performs[target]?.removeAll { $0.token === token }
        if performs[target]?.isEmpty == true { performs[target] = nil }
    }

    mutating func takeAll(of target: AnyObject) -> [RunLoop.DelayedPerform] {
        (performs.removeValue(forKey: ObjectIdentifier(target)) ?? []).map { $0.token }
    }

    /// In the order in which they were asked for. That of the table depends on addresses, and the targets are released in this one.
    mutating func takeAll() -> [RunLoop.DelayedPerform] {
        defer { performs = [:] }
        return performs.values.joined().sorted { $0.number < $1.number }.map { $0.token }
    }
}
