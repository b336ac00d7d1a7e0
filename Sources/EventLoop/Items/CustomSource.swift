import Synchronization

extension RunLoop {
    /// A source that threads signal by hand (CFRunLoopSource, version 0).
    ///
    /// `signal()` marks the source as ready and does not wake the loop: call the loop's `wakeUp()` afterwards. Any number of signals cause one call
    /// of `perform`. A signal stays pending until a run in one of the source's modes performs it; in several loops, the first that runs. Thread-safe.
    public final class CustomSource: Source, @unchecked Sendable {
        // SAFETY: constants and atomics.

        /// Sources of a smaller order are called first.
        public let order: Int
        let signalWord = SignalWord()
        /// The time of the pending signal, by the processor's clock. A counter that all threads share would be contended.
        let signaledAt = Atomic<UInt64>(0)
        private let handlers: HandlerSlot<Handlers>

        private struct Handlers: Sendable {
            let schedule: (@Sendable (RunLoop, Mode) -> Void)?
            let cancel: (@Sendable (RunLoop, Mode) -> Void)?
            let perform: @Sendable () -> Void
        }

        /// Makes a custom source.
        ///
        /// - Parameters:
        ///   - order: sources are performed in ascending order. Sources of equal order are performed in the order of their first pending signals.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - schedule: called once for each mode that the source is added to, on the thread that adds it, after the addition.
        ///   - cancel: called once for each mode that it is removed from, after the removal, on the thread that does it, or the loop's as that ends.
        ///   - perform: called on the loop's thread after the source was signaled.
        ///
        /// The library holds no lock during these calls. See `CFRunLoopSourceCreate`.
        public init(
            order: Int = 0, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            schedule: (@Sendable (RunLoop, Mode) -> Void)? = nil, cancel: (@Sendable (RunLoop, Mode) -> Void)? = nil,
            perform: @escaping @Sendable () -> Void
        ) {
            self.order = order
            handlers = HandlerSlot(Handlers(schedule: schedule, cancel: cancel, perform: perform))
            var traits: SourceCore.Traits = []
            if schedule != nil { traits.insert(.callsOutWhenJoining) }
            if cancel != nil { traits.insert(.callsOutWhenLeaving) }
            super.init(kind: .custom, recordedKind: .customSource, label: label, site: CreationSite(file, line), traits: traits)
        }

        deinit { endByLastRelease() }

        /// Whether a signal is pending. Thread-safe.
        public var isSignaled: Bool { signalWord.isPending }

        func goesBefore(_ other: CustomSource) -> Bool {
            order != other.order ? order < other.order : signaledAt.load(ordering: .relaxed) < other.signaledAt.load(ordering: .relaxed)
        }

        func callPerform() { /* DOES CALLOUT */ handlers.with { $0.handlers.perform() } }
        override func didJoin(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */ handlers.with { $0.handlers.schedule?(loop, mode) } }
        override func didLeave(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */ handlers.with { $0.handlers.cancel?(loop, mode) } }
        override func didInvalidate() { signalWord.take() }
        override func releaseHandlers() { handlers.clear() }
        override var typeDescription: String { "custom source" }
    }
}
