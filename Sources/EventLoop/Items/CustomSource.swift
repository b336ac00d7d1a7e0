// A source that threads signal by hand: the Guide's custom input source, version 0.

internal import CPlatform
import Synchronization

extension RunLoop {
    /// A source that other threads signal by hand (CFRunLoopSource, version 0).
    ///
    /// `signal()` sets a flag and wakes nobody: follow it with the loop's `wakeUp()`. Any number of signals before the perform are
    /// one perform. A signal stays until it is performed, in a run of one of the source's modes; in several loops one signal is one
    /// perform, by whichever loop gets there first. Thread-safe.
    public final class CustomSource: Source, @unchecked Sendable {
        // SAFETY: constants and atomics.

        public let order: Int
        let signalWord = SignalWord()
        /// When the pending signal was given. The processor's clock: a count that all threads share would be fought for.
        private let signaledAt = Atomic<UInt64>(0)

        private let handlers: HandlerSlot<Handlers>

        private struct Handlers: Sendable {
            let schedule: (@Sendable (RunLoop, Mode) -> Void)?
            let cancel: (@Sendable (RunLoop, Mode) -> Void)?
            let perform: @Sendable () -> Void
        }

        /// Makes a custom source.
        ///
        /// - Parameters:
        ///   - order: sources are performed in ascending order; equal ones by the time of their first pending signal.
        ///   - schedule: called once for each mode of a loop that the source gains, on the thread that adds it, after the fact.
        ///   - cancel: called once for each mode it loses, likewise; at thread end on the ending thread.
        ///   - perform: called on the loop's thread when the source was signaled.
        ///
        /// No lock is held in any of them. See `CFRunLoopSourceCreate`.
        public init(
            order: Int = 0, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            schedule: (@Sendable (RunLoop, Mode) -> Void)? = nil,
            cancel: (@Sendable (RunLoop, Mode) -> Void)? = nil,
            perform: @escaping @Sendable () -> Void
        ) {
            self.order = order
            handlers = HandlerSlot(Handlers(schedule: schedule, cancel: cancel, perform: perform))
            super.init(kind: .custom, label: label, site: CreationSite(file, line))
        }

        deinit { endByLastRelease() }

        /// Whether a signal is pending. Thread-safe.
        public var isSignaled: Bool { signalWord.isPending }

        /// By order, then by the time of the first pending signal.
        func goesBefore(_ other: CustomSource) -> Bool {
            order != other.order ? order < other.order : signaledAt.load(ordering: .relaxed) < other.signaledAt.load(ordering: .relaxed)
        }

        func recordSignalTime() { signaledAt.store(cplatform_ticks(), ordering: .relaxed) }

        func callPerform() { /* DOES CALLOUT */
            handlers.with { $0.handlers.perform() }
        }

        override func didJoin(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */
            handlers.with { $0.handlers.schedule?(loop, mode) }
        }

        override func didLeave(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */
            handlers.with { $0.handlers.cancel?(loop, mode) }
        }

        override func didInvalidate() { signalWord.take() }

        override func releaseHandlers() { handlers.clear() }

        override var typeDescription: String { "custom source" }
    }
}
