extension RunLoop {
    /// Fires at a date of the wall clock (CLOCK_REALTIME), once. A handler that wants another date sets `nextFire`.
    ///
    /// Never fires before its date. If the clock is set forwards past the date, or the machine wakes up after it, it fires at once. If the clock is
    /// set back, it fires when the date comes. A date fires once: the handler finds `nextFire` at `.distantFuture`, and sets the next one.
    ///
    /// In a loop with a `ManualClock` the wall time is that clock's. It is a source: a run that handles one source returns after it, and it keeps its
    /// modes from being empty until it is invalidated. Foundation computes dates with time zones, months and daylight saving (docs/civil-time.md).
    ///
    /// Thread-safe. If the timer is in several loops, one of them calls the handler; a loop with another clock than the first refuses it. Uses one
    /// descriptor. Linux only: elsewhere the initializer throws `.system` with ENOSYS. `CFRunLoopTimer` follows the wall clock in its dates only.
    public final class WallTimer: Source, WallClockObserver, @unchecked Sendable {
        // SAFETY: constants; the alarm has a lock.
        private struct State: Sendable {
            var date: WallTime
            /// The alarm has been made readable, and not been drained since.
            var isReadable = false
        }

        private let alarm: WallAlarm<State>
        /// The date as a deadline of loops with a manual clock.
        private let deadline = CompanionTimer("date of a wall timer")
        private let handler: HandlerSlot<@Sendable (WallTimer) -> Void>

        /// Makes a timer of the wall clock.
        ///
        /// - Parameters:
        ///   - date: when to fire; at once if it has passed, and never for `.distantFuture`.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - handler: called on the loop's thread, when one of the timer's modes runs.
        /// - Throws: `SourceError.system` if there are no descriptors left, or if the platform has no such timer (ENOSYS).
        public init(
            fireAt date: WallTime, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (WallTimer) -> Void
        ) throws(SourceError) {
            alarm = try WallAlarm(State(date: date), reportsSettings: false)
            self.handler = HandlerSlot(handler)
            super.init(kind: .watched, recordedKind: .wallTimer, label: label, site: CreationSite(file, line), traits: .isOfOneProcess)
        }

        deinit { endByLastRelease() }

        /// The date that it waits for; `.distantFuture` if it has fired or is invalid. Setting it reaches a sleeping loop; an invalid one ignores it.
        public var nextFire: WallTime {
            get { isValid ? alarm.withState { $0.date } ?? .distantFuture : .distantFuture }
            set {
                guard isValid else { return }
                alarm.withState { state in
                    state.date = newValue
                    arm(&state)
                }
                startDeadline()
            }
        }

        /// False in no loop, where nobody says by which clock.
        private func hasCome(_ state: State) -> Bool { state.date != .distantFuture && anyLoop.map { $0.wallTime >= state.date } ?? false }

        /// Arms the kernel's timer for what the source waits for. Under the lock.
        @discardableResult
        private func arm(_ state: inout State) -> Bool {
            let isDue = hasCome(state)
            if !isDue { alarm.arm(manualClock == nil ? state.date : .distantFuture) }
            // Arming a readable one again would make it unreadable for a moment.
            if isDue && !state.isReadable { alarm.makeReadable() }
            state.isReadable = isDue
            return isDue
        }

        /// In manual time the date is a deadline of each loop, so that a loop which advances its clock by itself advances it to this date.
        private func startDeadline() { if manualClock != nil { deadline.start({ [weak self] in self?.deadline(in: $0) }, for: self) {} } }

        /// None when the date has come: the source is ready then, and a pass that fires a timer serves no source.
        private func deadline(in loop: RunLoop) -> Instant? {
            guard let clock = loop.time.manualClock else { return nil }
            let date: WallTime = alarm.withState { $0.isReadable ? .distantFuture : $0.date } ?? .distantFuture
            return date == .distantFuture ? nil : clock.instant(of: date)
        }

        override var watch: Watch? { Watch(identity: alarm.identity, descriptor: alarm.descriptor) }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            let isDue = alarm.withState { state -> Bool in
                alarm.drain()
                state.isReadable = false
                // Not due: the clock was set back since the kernel's timer expired, or another loop was faster.
                let isDue = hasCome(state)
                if isDue { state.date = .distantFuture }
                arm(&state)
                return isDue
            }
            guard isDue == true else { return false }
            // Not the end of the deadline: another thread may have set the next date, and started its deadline, by now.
            startDeadline()
            handler.with { $0.handlers(self) }
            return true
        }

        override func didJoin(_ loop: RunLoop, _ mode: Mode) { count(loop, 1) { startDeadline() } }
        override func didLeave(_ loop: RunLoop, _ mode: Mode) { count(loop, -1) { deadline.leave(loop, mode, self) } }

        private func count(_ loop: RunLoop, _ difference: Int, ifManual: () -> Void) {
            let clock = loop.time.manualClock
            clock?.count(self, difference)
            alarm.withState { arm(&$0) }
            if clock != nil { ifManual() }
        }

        override func didInvalidate() { deadline.stop() }
        override func releaseHandlers() { handler.clear() }
        override var goesByWallTime: Bool { true }
        override var typeDescription: String { nextFire == .distantFuture ? "wall timer without a date" : "wall timer for \(nextFire)" }

        func wallClockMoved(settingItBy jump: Int64) {
            if let isDue = alarm.withState({ arm(&$0) }), isDue || jump != 0 { startDeadline() }
        }
    }
}
