extension RunLoop {
    /// Each time the task asks, reports how many times `signal` has arrived since the last time.
    ///
    /// Each iterator has its own `SignalSource` in `mode` of this loop (by default, all common modes), made with it, and counts from then on. A slow
    /// task gets one element with the number of signals. The source is removed when the iteration ends, its task is cancelled, or the iterator is
    /// released. The end of a signal's last source restores the earlier handler.
    ///
    /// Iterating throws `SourceError.badSignal` if the signal cannot be handled, and `RunLoopEnded` when the loop's thread exits. Thread-safe.
    ///
    /// ```
    /// for try await _ in loop.signals(SIGHUP) { try await server.readConfiguration() }
    /// ```
    public func signals(_ signal: Int32, mode: Mode = .common, file: StaticString = #fileID, line: UInt = #line) -> Signals {
        Signals { [self] channel in
            channel.connect(on: self, mode) {
                try SignalSource(signal: signal, label: "signals for a task", file: file, line: line) { _, count in
                    channel.post(count) { waiting, new in waiting += new }
                }
            }
        }
    }

    /// The result of `signals(_:)`. Any number of tasks may iterate it, each with its own source.
    public struct Signals: AsyncSequence, Sendable {
        /// How many signals have arrived, at least 1.
        public typealias Element = Int
        public typealias Failure = any Error
        let connect: @Sendable (SingleElementChannel<Int>) -> Void
        /// Makes the source. If that fails, the first `next()` throws the error.
        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: ChannelReader(connect: connect)) }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<Int>
            /// How many signals have arrived since the last call; nil if the task is cancelled.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> Int? {
                try await reader.channel.next(isolation: actor)
            }
        }
    }
}
