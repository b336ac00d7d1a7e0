import Synchronization

extension RunLoop {
    /// Each time the task asks, waits until `descriptor` is ready for one of `events`, and reports for which.
    ///
    /// Each iterator has its own one-shot source in `mode` of this loop (by default, all common modes), armed while the task waits, so
    /// nothing is queued. It is removed when the iteration ends, its task is cancelled, or the iterator is gone. What is not read is reported again.
    ///
    /// Iterating throws `SourceError` if the descriptor cannot be watched, or if another file has taken its number, and `RunLoopEnded` when
    /// the loop's thread exits. The caller must close the descriptor. After the iteration, `perform { close(descriptor) }` on the loop
    /// closes it when the kernel has stopped watching it. Thread-safe. For handlers on the loop's thread, see `DescriptorSource`.
    ///
    /// ```
    /// for try await _ in loop.readiness(of: socket) { while let bytes = try socket.readAvailable() { … } }
    /// ```
    public func readiness(
        of descriptor: Int32, events: DescriptorSource.Events = .read, mode: Mode = .common, file: StaticString = #fileID,
        line: UInt = #line
    ) -> DescriptorReadiness {
        DescriptorReadiness { [self] channel in
            channel.connect(on: self, mode, demand: { (source: DescriptorSource) in source.rearm() }) {
                let source = try DescriptorSource(
                    descriptor: descriptor, events: events, trigger: .oneShot, label: "readiness for a task", file: file, line: line
                ) { _, ready in channel.post(ready) { waiting, new in waiting.formUnion(new) } }
                source.core.pointee.isArmed.store(false, ordering: .releasing)
                return source
            }
        }
    }

    /// The result of `readiness(of:)`.
    public struct DescriptorReadiness: AsyncSequence, Sendable {
        public typealias Element = DescriptorSource.Events
        public typealias Failure = any Error
        let connect: @Sendable (SingleElementChannel<DescriptorSource.Events>) -> Void
        /// Makes the source. If that fails, the first `next()` throws the error.
        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: ChannelReader(connect: connect)) }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<DescriptorSource.Events>
            /// The events that the descriptor is ready for; nil if the task is cancelled.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> DescriptorSource.Events? {
                try await reader.channel.next(isolation: actor)
            }
        }
    }
}
