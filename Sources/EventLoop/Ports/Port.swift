extension RunLoop {
    /// A bounded message queue between threads of one process (NSMachPort, CFMachPort). One thread adds it to its loop, and others send to it.
    ///
    /// The loop delivers one message with each call of the handler, first in, first out, in runs of the port's modes; it counts as a handled source.
    /// Messages wait while the port is in no mode, or while other modes run. In several modes or loops, each message is delivered once. A pass
    /// delivers the messages that are there when the port's turn comes. A run that returns after a source, or is stopped, leaves the rest.
    ///
    /// A port without a handler keeps its messages for `messages(of:)`. It can also be an address to compare, or keep a mode from being empty.
    ///
    /// Removing a port from modes keeps its messages. `invalidate()` and the last release drop them, and waiting senders get an error. A port in its
    /// own queue, and two that hold each other in messages, are reference cycles and must be invalidated. Thread-safe. A port has no descriptor.
    public final class Port: Source, @unchecked Sendable {
        // SAFETY: constants and atomics; `queue` has a lock; `batch` says its own.
        /// How many messages may wait before the port is full.
        public let capacity: Int
        let queue: PortQueue
        let hasHandler: Bool
        private let readerList = LoopLock<[WeakSource]>([])

        // SAFETY: accessed only by the thread of `servingLoop`. Empty while no thread serves the port.
        @exclusivity(unchecked) private var batch = Deque<PortMessage>()
        private let handler: HandlerSlot<Handler>
        private struct Handler: Sendable { let call: (@Sendable (Port, PortMessage) -> Void)? }

        /// Makes a port, in no mode yet.
        ///
        /// - Parameters:
        ///   - capacity: how many messages may wait before `send` blocks. Less than one is a precondition failure.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - handler: called once for each message, on the thread of the loop that serves the port; never on two threads at once. A run that is
        ///     nested in it may call it again. If nil, the messages wait for `messages(of:)`.
        public init(
            capacity: Int = 1024, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: (@Sendable (Port, PortMessage) -> Void)? = nil
        ) {
            precondition(capacity > 0, "a port's capacity is \(capacity), so it could never accept a message; pass at least 1")
            self.capacity = capacity
            queue = PortQueue(capacity: capacity)
            hasHandler = handler != nil
            self.handler = HandlerSlot(Handler(call: handler))
            super.init(kind: .messages, recordedKind: .port, label: label, site: CreationSite(file, line))
        }

        deinit {
            assert(batch.isEmpty, "a batch exists only during a step")
            // A sender that waits retains the port, so only requests for room can be left.
            if isValid && queue.isAwaited { queue.close() }
            endByLastRelease()
        }

        override var isOfUseInMode: Bool { hasHandler }
        override var hasMessage: Bool { hasHandler && isValid && queue.count > 0 }
        override var lastMessage: UInt64 { queue.lastNumber }

        override func serveMessage(upTo last: UInt64, onlyOne: Bool) -> Bool { /* DOES CALLOUT */
            guard queue.holds(upTo: last) else { return false }
            if batch.isEmpty {
                if onlyOne { return queue.takeFirst().map(deliver) != nil }
                queue.takeAll(into: &batch)
                if batch.isEmpty { return false }  // the port was invalidated meanwhile
            }
            deliver(batch.popFirst())
            return true
        }

        @inline(__always) private func deliver(_ message: PortMessage) { /* DOES CALLOUT */
            queue.makeRoom()
            if queue.fillRoom() { notifyLoopsOfMessages() }
            handler.with { $0.handlers.call?(self, message) }
        }

        override func returnMessages() { /* DOES CALLOUT */
            if batch.isEmpty { return }
            queue.putBack(&batch)
            if batch.isEmpty { return }  // it keeps its memory for the next turn
            // The port is invalid, so its messages are dropped. They leave the batch first, because their release may run user code.
            var dropped = Deque<PortMessage>()
            swap(&dropped, &batch)
        }

        override func didInvalidate() { /* DOES CALLOUT */
            queue.close()
            for reader in readers { reader.source?.invalidate() }
        }

        override func releaseHandlers() { handler.clear() }

        override var typeDescription: String {
            let (messages, senders) = (isValid ? queue.count : 0, queue.senderCount)
            return (hasHandler ? "port" : "port without a handler") + (messages == 0 ? "" : ", waiting messages: \(messages)")
                + (senders == 0 ? "" : ", waiting senders: \(senders)")
        }

        /// Sources that take messages instead of a handler. Weak, because a loop retains them.
        var readers: [WeakSource] { readerList.withLockIfOwn { $0 } ?? [] }

        /// Adds a reader. The port notifies it of messages, and invalidates it when the port becomes invalid.
        func add(_ reader: Source) {
            readerList.withLock { readers in
                readers.removeAll { $0.source == nil }
                readers.append(WeakSource(source: reader))
            }
            // If the port is already invalid, its invalidation may have missed the reader.
            if !isValid { reader.invalidate() }
        }

        /// The only loops that could make room are in another process.
        var isServedByParentProcessOnly: Bool {
            if ProcessMark.isFirst { return false }
            return state.withLockIfOwn { $0.memberships }.map { !$0.isEmpty && $0.allSatisfy { !$0.loop.isOurs } } ?? true
        }
    }
}

struct WeakSource: Sendable { weak var source: RunLoop.Source? }
