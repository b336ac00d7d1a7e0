internal import CPlatform

extension RunLoop {
    /// Calls its handler when an administrator, or a time service that steps, has set the wall clock; not when it is slewed or the machine wakes up.
    ///
    /// Settings before the loop looks are one call, with their sum; there is none if that is zero. Settings count from the creation of the source on.
    /// The difference is measured, to a microsecond on an idle machine. Less than 100 µs is reported when further settings add up to more: setting
    /// the clock to what it says takes a moment. In a loop with a `ManualClock`, setting its `wallTime` calls the handler, with the exact difference.
    ///
    /// Thread-safe. If the source is in several loops, one of them calls the handler; a loop with another clock than the first refuses it. Uses one
    /// descriptor. Linux only: elsewhere the initializer throws `.system` with ENOSYS. Foundation posts `NSSystemClockDidChange`; CFRunLoop does not.
    public final class ClockChangeSource: Source, WallClockObserver, @unchecked Sendable {
        // SAFETY: constants; the alarm has a lock.
        private struct State: Sendable {
            /// Of the system's clock, as it was last reported.
            var offset: Int64
            /// What manual clocks have been set by, and nobody has been called for.
            var manualJump: Int64 = 0

            /// By how much the system's clock was set since the last report; zero if that is too little to be reported.
            var unreportedJump: Int64 {
                let difference = cplatform_wall_clock_offset().subtractingSaturated(offset)
                return difference.magnitude < 100_000 ? 0 : difference
            }
        }

        private let alarm: WallAlarm<State>
        private let handler: HandlerSlot<@Sendable (ClockChangeSource, Duration) -> Void>

        /// Makes a source for settings of the wall clock.
        ///
        /// - Parameters:
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - handler: receives by how much the clock was set: a positive `jump` is forwards.
        /// - Throws: `SourceError.system` if there are no descriptors left, or if the platform has no such timer (ENOSYS).
        public init(
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (ClockChangeSource, _ jump: Duration) -> Void
        ) throws(SourceError) {
            alarm = try WallAlarm(State(offset: cplatform_wall_clock_offset()), reportsSettings: true)
            self.handler = HandlerSlot(handler)
            super.init(kind: .watched, recordedKind: .clockChange, label: label, site: CreationSite(file, line), traits: .isOfOneProcess)
        }

        deinit { endByLastRelease() }
        override var watch: Watch? { Watch(identity: alarm.identity, descriptor: alarm.descriptor) }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            let jump = alarm.withState { state -> Int64 in
                alarm.drain()
                alarm.arm(.distantFuture)  // first: a setting after the measurement makes the descriptor readable again
                let manualJump = state.manualJump
                state.manualJump = 0
                guard let loop = anyLoop, loop.time.manualClock == nil else { return manualJump }
                let jump = state.unreportedJump
                state.offset = state.offset.addingSaturated(jump)
                return manualJump.addingSaturated(jump)
            }
            guard let jump, jump != 0 else { return false }
            handler.with { $0.handlers(self, .nanoseconds(jump)) }
            return true
        }

        override func didJoin(_ loop: RunLoop, _ mode: Mode) {
            if let clock = loop.time.manualClock { return clock.count(self, 1) }
            // A loop from which the source was removed just then, or one in manual time, may have taken the kernel's report.
            alarm.withState { if $0.unreportedJump != 0 { alarm.makeReadable() } }
        }

        override func didLeave(_ loop: RunLoop, _ mode: Mode) { loop.time.manualClock?.count(self, -1) }
        override func releaseHandlers() { handler.clear() }
        override var goesByWallTime: Bool { true }
        override var typeDescription: String { "clock change" }

        func wallClockMoved(settingItBy jump: Int64) {
            if jump == 0 { return }
            alarm.withState { state in
                state.manualJump = state.manualJump.addingSaturated(jump)
                alarm.makeReadable()
            }
        }
    }
}
