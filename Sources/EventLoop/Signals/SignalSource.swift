// A process signal as an input source. The handler that runs in signal context is in CPlatform (signals.c).

import Synchronization

extension RunLoop {
    /// A process signal, delivered on the loop and never in signal context.
    ///
    /// Any number of sources, in any loops, may watch one signal; each is told, with a count of its own. It counts from its making on, in
    /// whatever modes the loop runs: what has come while other modes ran, or before the source was added to a loop, is told when one of its
    /// modes runs. Signals that come faster than the handler is called are one call with their number.
    ///
    /// What the signal would do by default does not happen while there is a source. A handler that was installed before is called as well,
    /// after the sources have been told and in signal context, where it belongs; it is back in its place when the last source of the signal
    /// becomes invalid. A handler that somebody installs later must call the one it found, or the sources hear nothing; it is left where it is
    /// when they end. A child of `fork` begins with the actions that were there before the sources.
    ///
    /// The signal is delivered to any thread that does not block it; there has to be one, and it need not be the loop's. Not promised when
    /// Dispatch watches the same signal, because it takes signals away from every handler.
    ///
    /// Thread-safe. In several loops the source is served once, by one of them. Costs a descriptor.
    public final class SignalSource: Source, @unchecked Sendable {
        // SAFETY: constants.

        public let signal: Int32
        private let signals: SignalWatch

        private let handler: HandlerSlot<Handler>

        private struct Handler: Sendable {
            let call: @Sendable (SignalSource, Int) -> Void
        }

        /// Makes a source for a signal, and begins to count.
        ///
        /// - Parameter handler: gets how many of them arrived since its last call: 1 or more. The kernel itself merges ordinary signals that are
        ///   sent while one is waiting to be delivered; those are one.
        /// - Throws: `SourceError.badSignal` for a number that cannot be handled: SIGKILL, SIGSTOP, the signals that report a fault of the
        ///   program (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP), and what is no signal. `.system` when there are no descriptors left.
        public init(
            signal: Int32, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (SignalSource, Int) -> Void
        ) throws(SourceError) {
            signals = try SignalWatch(signal: signal)
            self.signal = signal
            self.handler = HandlerSlot(Handler(call: handler))
            super.init(kind: .watched, label: label, site: CreationSite(file, line))
        }

        deinit {
            // First: the earlier handler is back by then.
            signals.end()
            endByLastRelease()
        }

        override var watch: Watch? {
            Watch(descriptor: signals.descriptor, wanted: .read, trigger: .level, priority: .default, identity: signals.identity)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            let count = signals.take()
            // Another loop that the source is in was quicker, or the handler in signal context has counted and not written yet.
            if count == 0 { return false }
            handler.with { $0.handlers.call(self, count) }
            return true
        }

        /// At once, on whatever thread: the earlier handler is back when `invalidate` returns.
        override func didInvalidate() { signals.end() }

        override func releaseHandlers() { handler.clear() }

        override var typeDescription: String { "signal \(signal)" }
    }
}
