extension RunLoop {
    /// A process signal, delivered on the loop and never in signal context.
    ///
    /// Several sources, in any loops, may watch one signal. Each has its own count, from its creation on, whatever modes run, and reports it when one
    /// of its modes runs. Signals that arrive faster than the handler is called coalesce into one call with their number.
    ///
    /// While a source exists, the default action of the signal does not happen. A handler that was installed earlier is still called, in signal
    /// context, after the sources have counted the signal. It is restored when the last source of the signal becomes invalid. A handler that other
    /// code installs later must call the handler that it replaces; otherwise the sources receive no signals. It stays installed when the sources end.
    ///
    /// The kernel delivers the signal to any thread that does not block it, which need not be the loop's. If all threads block it, because the
    /// program was started with the signal blocked, the thread of the source's loop unblocks it, when the loop runs the source's mode. If Dispatch
    /// watches the same signal, delivery is not guaranteed, because Dispatch takes signals away from all handlers.
    ///
    /// A child of fork gets no signals from its parent's source. Thread-safe. In several loops, one of them serves the source. Uses one descriptor.
    public final class SignalSource: Source, @unchecked Sendable {
        // SAFETY: constants.
        /// The number of the signal.
        public let signal: Int32
        private let signals: SignalWatch
        private let handler: HandlerSlot<@Sendable (SignalSource, Int) -> Void>
        private let latest = LoopLock<[Details]>([])

        /// Makes a source for a signal, and starts to count.
        ///
        /// - Parameters:
        ///   - signal: its number, for example `SIGTERM`.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - handler: receives how many signals have arrived since its last call, at least 1. Those that the kernel coalesces count as one.
        /// - Throws: `SourceError.badSignal` for SIGKILL, SIGSTOP, the signals that report a fault of the program (SIGSEGV, SIGBUS, SIGFPE,
        ///   SIGILL, SIGTRAP), and numbers that are not signals. `.system` if there are no descriptors left.
        public init(
            signal: Int32, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (SignalSource, Int) -> Void
        ) throws(SourceError) {
            signals = try SignalWatch(signal: signal)
            self.signal = signal
            self.handler = HandlerSlot(handler)
            super.init(kind: .watched, recordedKind: .signalSource, label: label, site: CreationSite(file, line), traits: .isOfOneProcess)
        }

        deinit {
            signals.end()  // first, so that the earlier handler is restored when the `onInvalidation` closures run
            endByLastRelease()
        }

        override var watch: Watch? { Watch(identity: signals.identity, descriptor: signals.descriptor) }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            let count = signals.take()
            // Zero if another loop has taken the count, or if it was taken between the signal handler's increment and its write.
            if count == 0 { return false }
            let details = signals.takeDetails(count)
            latest.withLock { $0 = details }
            handler.with { $0.handlers(self, count) }
            return true
        }

        override func willBeWatched() { signals.letThrough() }
        /// On the thread that invalidates the source, so that the earlier handler is restored when `invalidate` returns.
        override func didInvalidate() { signals.end() }
        override func releaseHandlers() { handler.clear() }
        override var typeDescription: String { "signal \(signal)" }

        /// What the kernel says about one signal (siginfo_t, see sigaction(2)).
        public struct Details: Sendable, Hashable {
            /// How it was sent (`si_code`): 0 with kill(2), `SI_QUEUE` with sigqueue(3), positive by the kernel, and others.
            public var code: Int32
            /// The process that sent it; for SIGCHLD the child. Nil if no process sent it.
            public var processID: Int32?
            /// The real user of that process.
            public var userID: UInt32?
            /// The value that sigqueue(3), a timer or a message queue sent along.
            public var value: Int32?

            /// Makes details: for tests of code that takes them.
            public init(code: Int32, processID: Int32? = nil, userID: UInt32? = nil, value: Int32? = nil) {
                (self.code, self.processID, self.userID, self.value) = (code, processID, userID, value)
            }
        }

        /// What the kernel says about the signals of the latest call of the handler, oldest first. Of more than 64, the later ones have no details.
        /// Thread-safe, but another loop that the source is in may replace it. CFRunLoop has nothing like it.
        public var details: [Details] { latest.withLock { $0 } }
    }
}
