// Process signals, for a task.

extension RunLoop {
    /// Tells a task how many times `signal` has arrived since it last asked.
    ///
    /// Each iterator has a `SignalSource` of its own in `mode` of this loop (by default all common modes), made with the iterator, and
    /// counts from then on. A task that is slower than the signals gets one element with their number: nothing is queued. The source goes
    /// when the iteration ends, its task is cancelled, or the iterator is let go of; with the last source of a signal the handler that was
    /// there before it is back.
    ///
    /// Iterating throws `SourceError.badSignal` for what cannot be handled, and `RunLoopEnded` when the loop's thread exits.
    ///
    /// ```
    /// for try await _ in loop.signals(SIGHUP) { try await server.readConfiguration() }
    /// ```
    ///
    /// Thread-safe.
    public func signals(
        _ signal: Int32, mode: Mode = .common, file: StaticString = #fileID, line: UInt = #line
    ) -> Signals {
        Signals(loop: self, signal: signal, mode: mode, file: file, line: line)
    }

    /// What `signals(_:)` makes: a sequence that any number of tasks may iterate, each with a source of its own.
    public struct Signals: AsyncSequence, Sendable {
        /// How many have arrived: 1 or more.
        public typealias Element = Int
        public typealias Failure = any Error

        let loop: RunLoop
        let signal: Int32
        let mode: Mode
        let file: StaticString
        let line: UInt

        /// Makes the source; what stands in its way is thrown by the first `next()`.
        public func makeAsyncIterator() -> AsyncIterator {
            let channel = SingleElementChannel<Int>()
            do { try connect(channel) } catch { channel.end(throwing: error) }
            return AsyncIterator(reader: ChannelReader(channel))
        }

        private func connect(_ channel: SingleElementChannel<Int>) throws {
            let source = try SignalSource(signal: signal, label: "signals for a task", file: file, line: line) { _, count in
                channel.post(count) { waiting, new in waiting += new }
            }
            // The loop alone holds the source, so that it goes with the loop.
            source.onInvalidation { channel.end(throwing: $0.failure ?? RunLoopEnded()) }
            channel.connect { [weak source] in source?.invalidate() }
            if !loop.add(source, forMode: mode) { throw RunLoopEnded() }
        }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<Int>

            /// How many signals have arrived since the last call; nil when the task is cancelled.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> Int? {
                try await reader.channel.next(isolation: actor)
            }
        }
    }
}
