// The readiness of a descriptor, for a task.

import Synchronization

extension RunLoop {
    /// Tells a task each time it asks when `descriptor` is ready for one of `events`, and for which.
    ///
    /// Each iterator has a one-shot source of its own in `mode` of this loop (by default all common modes), made with the iterator, armed
    /// while its task waits for the next element and at no other time, so that nothing is queued for a slow task. It goes when the
    /// iteration ends, its task is cancelled, or the iterator is let go of. Read until there is nothing more before asking again, or be
    /// told again.
    ///
    /// Iterating throws `SourceError` when the descriptor cannot be watched, or its number was taken by another file, and `RunLoopEnded`
    /// when the loop's thread exits. The descriptor stays the caller's: `perform { close(descriptor) }` on the loop, after the iteration,
    /// closes it when the kernel has let go of it.
    ///
    /// ```
    /// for try await _ in loop.readiness(of: socket) { while let bytes = try socket.readAvailable() { … } }
    /// ```
    ///
    /// Thread-safe. For handlers on the loop's thread, see `DescriptorSource`.
    public func readiness(
        of descriptor: Int32, events: DescriptorSource.Events = .read, mode: Mode = .common,
        file: StaticString = #fileID, line: UInt = #line
    ) -> DescriptorReadiness {
        DescriptorReadiness(loop: self, descriptor: descriptor, events: events, mode: mode, file: file, line: line)
    }

    /// What `readiness(of:)` makes.
    public struct DescriptorReadiness: AsyncSequence, Sendable {
        public typealias Element = DescriptorSource.Events
        public typealias Failure = any Error

        let loop: RunLoop
        let descriptor: Int32
        let events: DescriptorSource.Events
        let mode: Mode
        let file: StaticString
        let line: UInt

        /// Makes the source; what stands in its way is thrown by the first `next()`.
        public func makeAsyncIterator() -> AsyncIterator {
            let channel = SingleElementChannel<DescriptorSource.Events>()
            do { try connect(channel) } catch { channel.end(throwing: error) }
            return AsyncIterator(reader: ChannelReader(channel))
        }

        private func connect(_ channel: SingleElementChannel<DescriptorSource.Events>) throws {
            let source = try DescriptorSource(
                descriptor: descriptor, events: events, trigger: .oneShot, label: "readiness for a task", file: file, line: line
            ) { _, ready in
                channel.post(ready) { waiting, new in waiting.formUnion(new) }
            }
            source.isArmed.store(false, ordering: .releasing)
            // The loop alone holds the source, so that it goes with the loop.
            source.onInvalidation { channel.end(throwing: $0.failure ?? RunLoopEnded()) }
            channel.connect(demand: { [weak source] in source?.rearm() }, removal: { [weak source] in source?.invalidate() })
            if !loop.add(source, forMode: mode) { throw RunLoopEnded() }
        }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<DescriptorSource.Events>

            /// What the descriptor has become ready for; nil when the task is cancelled.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws -> DescriptorSource.Events? {
                try await reader.channel.next(isolation: actor)
            }
        }
    }
}
