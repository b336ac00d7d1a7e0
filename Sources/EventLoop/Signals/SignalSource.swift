// A source for a process signal. The handler that runs in signal context is in CPlatform (signals.c).

import Synchronization

extension RunLoop {
    /// A process signal, delivered on the loop and never in signal context.
    ///
    /// Several sources, in any loops, may watch one signal, and each has its own count. A source counts from its creation on, regardless of
    /// the modes that the loop runs. Signals that arrive while other modes run, or before the source is added to a loop, are reported when
    /// one of the source's modes runs. Signals that arrive faster than the handler is called coalesce into one call with their number.
    ///
    /// While a source exists, the default action of the signal does not happen. A handler that was installed earlier is still called, in
    /// signal context, after the sources have counted the signal. It is restored when the last source of the signal becomes invalid. A
    /// handler that other code installs later must call the handler that it replaces; otherwise the sources receive no signals. It stays
    /// installed when the sources end. A child of `fork` starts with the actions from before the sources.
    ///
    /// The kernel delivers the signal to any thread that does not block it. There must be one, and it need not be the loop's. If Dispatch
    /// watches the same signal, delivery is not guaranteed, because Dispatch takes signals away from all handlers.
    ///
    /// Thread-safe. If the source is in several loops, one of them serves it. Uses one descriptor.
    public final class SignalSource: Source, @unchecked Sendable {
        // SAFETY: constants.

        /// The number of the signal.
        public let signal: Int32
        private let signals: SignalWatch

        private let handler: HandlerSlot<Handler>

        private struct Handler: Sendable {
            let call: @Sendable (SignalSource, Int) -> Void
        }

        /// Makes a source for a signal, and starts to count.
        ///
        /// - Parameters:
        ///   - signal: its number, for example `SIGTERM`.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - handler: receives how many signals have arrived since its last call, at least 1. The kernel itself coalesces
        ///     ordinary signals that are sent while one waits to be delivered; those count as one.
        /// - Throws: `SourceError.badSignal` for SIGKILL, SIGSTOP, the signals that report a fault of the program (SIGSEGV, SIGBUS, SIGFPE,
        ///   SIGILL, SIGTRAP), and numbers that are not signals. `.system` if there are no descriptors left.
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
            // First, so that the earlier handler is restored when the `onInvalidation` closures run.
            signals.end()
            endByLastRelease()
        }

        override var watch: Watch? {
            Watch(descriptor: signals.descriptor, wanted: .read, trigger: .level, priority: .default, identity: signals.identity)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            let count = signals.take()
            // Zero if another loop that the source is in has taken the count, or if the count was taken between the signal handler's
            // increment and its write.
            if count == 0 { return false }
            handler.with { $0.handlers.call(self, count) }
            return true
        }

        /// On the thread that invalidates the source, so that the earlier handler is restored when `invalidate` returns.
        override func didInvalidate() { signals.end() }

        override func releaseHandlers() { handler.clear() }

        override var recordedKind: RunLoop.Recording.Kind { .signalSource }

        override var typeDescription: String { "signal \(signal)" }
    }
}
