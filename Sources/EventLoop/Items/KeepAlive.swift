extension RunLoop {
    /// Keeps a mode from being empty until it is cancelled or released. Then a sleeping loop checks the mode at once. Thread-safe.
    public final class KeepAlive: Sendable {
        private let ending: HandlerSlot<@Sendable () -> Void>
        init(_ ending: @escaping @Sendable () -> Void) { self.ending = HandlerSlot(ending) }
        deinit { cancel() }
        /// Ends it. No-op if already cancelled.
        public func cancel() { ending.take()?() }
    }
}
