import Synchronization

extension RunLoop.Timer {
    /// Makes a timer that fires once, `delay` from now.
    ///
    /// "Now" is the time of the calling thread's loop: manual when that uses a `ManualClock`, else the monotonic clock.
    public convenience init(
        after delay: Swift.Duration, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        handler: @escaping @Sendable (RunLoop.Timer) -> Void
    ) {
        self.init(
            date: RunLoop.presentOfCaller.advanced(by: delay).nanoseconds, label: label, site: CreationSite(file, line), handler: handler)
    }

    /// Makes a timer that fires every `interval`, first one interval from now (as in `init(after:)`). One below 0.1 ms, or negative, is 0.1 ms.
    public convenience init(
        every interval: Swift.Duration, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        handler: @escaping @Sendable (RunLoop.Timer) -> Void
    ) {
        let site = CreationSite(file, line)
        let nanoseconds = Self.honouredInterval(interval.saturatedNanoseconds, ifNegative: Self.shortestInterval, label, site)
        self.init(
            date: RunLoop.presentOfCaller.nanoseconds.addingSaturated(nanoseconds), interval: nanoseconds, label: label, site: site,
            handler: handler)
    }

    /// Makes a timer without a date: it fires when `nextFire` is set, once for each setting, and stays valid; for timeouts that come and
    /// go. It keeps its modes from being empty also without a date.
    public static func onDemand(
        label: String? = nil, file: StaticString = #fileID, line: UInt = #line, handler: @escaping @Sendable (RunLoop.Timer) -> Void
    ) -> RunLoop.Timer {
        RunLoop.Timer(date: .max, isOnDemand: true, label: label, site: CreationSite(file, line), handler: handler)
    }

    /// Makes a timer that fires once, `delay` from now, and adds it to the calling thread's loop in the default mode.
    @available(*, noasync, message: "an async function has no thread of its own; make the timer, and add it to the loop you mean")
    @discardableResult
    public static func scheduled(
        after delay: Swift.Duration, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        handler: @escaping @Sendable (RunLoop.Timer) -> Void
    ) -> RunLoop.Timer {
        let timer = RunLoop.Timer(after: delay, label: label, file: file, line: line, handler: handler)
        RunLoop.threadsLoop().add(timer)
        return timer
    }

    /// Makes a timer that fires every `interval`, and adds it to the calling thread's loop in the default mode.
    @available(*, noasync, message: "an async function has no thread of its own; make the timer, and add it to the loop you mean")
    @discardableResult
    public static func scheduled(
        every interval: Swift.Duration, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        handler: @escaping @Sendable (RunLoop.Timer) -> Void
    ) -> RunLoop.Timer {
        let timer = RunLoop.Timer(every: interval, label: label, file: file, line: line, handler: handler)
        RunLoop.threadsLoop().add(timer)
        return timer
    }

    /// When the timer fires next; `.distantFuture` once it is invalid. While the handler runs, the date that is being fired; an `onDemand` timer
    /// has none then until one is set.
    ///
    /// Setting it moves the timer and restarts a repeating timer's grid. A date in the past reads back as it was set, means the next pass, and starts
    /// the grid at the present of the timer's loop. While the timer is in no loop, the present is that of the calling thread's loop, or real time if
    /// the thread has none. A loop that the timer joins and whose `ManualClock` is behind compares the date with its own time again. A date that is
    /// set in the timer's own handler is kept, but a timer that fires once ends with its callout. Reaches a sleeping loop at once. O(1) on the owning
    /// thread for a later date, O(log n) for an earlier one. Thread-safe. See `CFRunLoopTimerSetNextFireDate`.
    public var nextFire: RunLoop.Instant {
        get { isValid ? RunLoop.Instant(nanoseconds: dateAsSet(date.load(ordering: .acquiring))) : .distantFuture }
        set {
            guard isValid else { return }
            let location = TimerLocation(word: location.load(ordering: .acquiring))
            let asked = newValue.nanoseconds
            let newDate = repeats ? dateToFile(asked, present: present(in: state.value.loopID)) : asked
            guard location.isDirect, location.loopID == LoopID.current, location.loopID != 0 else { return setDate(newDate) }
            // Only this thread files the timer, and only its own callout asks whether the date was set. If another thread is just moving it
            // to another loop, that loop gets a change when this one releases the timer (`apply(.timerDied)`).
            date.store(newDate, ordering: .releasing)
            if isFiring {
                // Filed when the callout has returned: a run that is nested in it does not wake for this timer.
                _ = state.noteDateSet()
            } else if !LoopLifetime.withCurrent({ $0.reschedule(location, newDate) }) {
                // Another thread has added it, and may remove it again without a change that this loop would see.
                setDate(newDate)
            }
        }
    }

    /// The present in the time of the loop that the timer is in; of the caller's loop if it is in none.
    private func present(in loopID: UInt64) -> Int64 {
        if loopID == 0 || loopID == LoopID.current { return RunLoop.presentOfCaller.nanoseconds }
        return (LoopRegistry.loop(loopID)?.now() ?? RunLoop.presentOfCaller).nanoseconds
    }

    @inline(never) private func setDate(_ nanoseconds: Int64) {
        date.store(nanoseconds, ordering: .sequentiallyConsistent)
        // After the store: a loop that takes the timer in meanwhile reads the date after it has put its name here.
        let was = state.noteDateSet()
        if was.loopID == 0 { return }
        if was.loopID != LoopID.current { return submitRedate(was.loopID) }
        if !was.isFiring { LoopLifetime.unsafeCurrent.reschedule(self) }
    }

    /// How late the timer may fire, so that one wake-up can serve several. Reads back as honored: never negative, at most half of
    /// `interval`. Thread-safe. See `CFRunLoopTimerSetTolerance`.
    public var tolerance: Swift.Duration {
        get { .nanoseconds(toleranceNanoseconds) }
        set {
            // In this order, as `setDate`.
            toleranceNanoseconds = Self.honoured(newValue.saturatedNanoseconds, interval: intervalNanoseconds)
            let loopID = state.latest.loopID
            if loopID == 0 { return }
            if loopID != LoopID.current { return submitRedate(loopID) }
            LoopLifetime.unsafeCurrent.fileAgain(self)
            LoopLifetime.unsafeCurrent.didChangeDeadline()
        }
    }

    func submitRedate(_ loopID: UInt64) { LoopRegistry.loop(loopID)?.submitRedate(of: self) }

    /// Calls the handler of a valid timer now, on this thread. One that fires once ends; others keep their dates. Thread-safe. See `NSTimer.fire`.
    public func fire() { /* DOES CALLOUT */
        guard state.enter() else { return }
        callHandler()
        if !repeats && !state.isOnDemand { invalidate() }
        if state.exit() { finish() }
    }

    /// Takes the timer out of every mode, for good, and releases its handler: on the loop's thread where there is one, or here if the loop has not
    /// seen the timer yet. Does not wait for a call of the handler on another thread. Thread-safe. See `CFRunLoopTimerInvalidate`.
    public func invalidate() {
        let location = TimerLocation(word: location.load(ordering: .acquiring))
        if location.isDirect && location.loopID != 0 && location.loopID == LoopID.current {
            if LoopLifetime.withCurrent({ $0.expelAtOnce(self, location, ending: .validity) }) { return }
        }
        let (was, isLast) = state.invalidate()
        if !was.isValid { return }
        if isLast { return finish() }
        if was.loopID != 0 { LoopRegistry.loop(was.loopID)?.expel(self) }
    }
}
