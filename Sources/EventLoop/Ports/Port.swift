// A mailbox between threads of one process. Loop/RunLoop+Messages.swift serves it, and sends.

import Synchronization

extension RunLoop {
    /// A mailbox between threads of one process (NSMachPort, CFMachPort): one thread adds it to its loop, others send to it.
    ///
    /// Messages are handed out one for each call of the handler, first in, first out, in runs of the port's modes; they wait while the port
    /// is in no mode or other modes run. In several modes or loops each message is handed out once. A message counts as a handled source.
    /// A pass hands out those that were there when it came to the port; one that returns after a source, or is stopped, leaves the rest.
    ///
    /// A port without a handler keeps its messages for `messages(of:)`, or stands for itself: as an address to compare, or to keep a mode alive.
    ///
    /// Removing a port from modes keeps its messages. `invalidate()` drops them, and sends waiting senders away; so does the last release of
    /// the port. A port that is part of a message in its own queue, or of one in a port that it holds, has no last release: invalidate it.
    ///
    /// Thread-safe. It has no descriptor; sending to a loop that is at work costs no system call.
    public final class Port: Source, @unchecked Sendable {
        // SAFETY: constants and atomics; `queue` has a lock; `batch` says its own.

        /// How many messages may wait before `send` blocks.
        public let capacity: Int
        let queue: PortQueue
        let hasHandler: Bool
        /// Sources that take messages in the handler's place. Weak: a loop holds them.
        let readers = ForkAwareMutex<[WeakSource]>([])

        // SAFETY: touched by the thread of `servingLoop` only. Empty while no thread serves the port.
        @exclusivity(unchecked) private var batch = Deque<PortMessage>()

        private let handler: HandlerSlot<Handler>

        private struct Handler: Sendable {
            let call: (@Sendable (Port, PortMessage) -> Void)?
        }

        /// Makes a port, in no mode yet.
        ///
        /// - Parameters:
        ///   - capacity: messages that may wait before `send` blocks; at least one (a precondition failure).
        ///   - handler: called on the thread of the loop that serves the port, once for each message. It never runs on two threads at once; a
        ///     nested run may call it again. Nil keeps the messages for `messages(of:)`.
        public init(
            capacity: Int = 1024, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: (@Sendable (Port, PortMessage) -> Void)? = nil
        ) {
            precondition(capacity > 0, "a port that has room for no message could never be sent one; give it a capacity of at least 1")
            self.capacity = capacity
            queue = PortQueue(capacity: capacity)
            hasHandler = handler != nil
            self.handler = HandlerSlot(Handler(call: handler))
            super.init(kind: .messages, label: label, site: CreationSite(file, line))
        }

        deinit {
            assert(batch.isEmpty, "a batch ends with the step that took it")
            endByLastRelease()
        }

        // MARK: Being served

        override var hasMessage: Bool { hasHandler && isValid && queue.count > 0 }

        override var lastMessage: UInt64 { queue.lastNumber }

        override func serveMessage(upTo last: UInt64, onlyOne: Bool) -> Bool { /* DOES CALLOUT */
            guard queue.holds(upTo: last) else { return false }
            if batch.isEmpty {
                if onlyOne { return queue.takeFirst().map(handOut) != nil }
                queue.takeAll(into: &batch)
                // Invalidated meanwhile.
                if batch.isEmpty { return false }
            }
            handOut(batch.popFirst())
            return true
        }

        @inline(__always)
        private func handOut(_ message: PortMessage) { /* DOES CALLOUT */
            if queue.countDelivery() { notifyLoopsOfMessages() }
            handler.with { $0.handlers.call?(self, message) }
        }

        override func returnMessages() { /* DOES CALLOUT */
            if batch.isEmpty { return }
            queue.putBack(&batch)
            if batch.isEmpty { return }
            // Invalid: they are dropped. First out of the batch, because the end of what they hold may be a callout.
            var dropped = Deque<PortMessage>()
            swap(&dropped, &batch)
        }

        // MARK: The end

        override func didInvalidate() { /* DOES CALLOUT */
            queue.close()
            let readers = readers.withLockUnlessInherited { $0 } ?? []
            for reader in readers { reader.source?.invalidate() }
        }

        override func releaseHandlers() { handler.clear() }

        override var typeDescription: String {
            let (messages, senders) = (isValid ? queue.count : 0, queue.senderCount)
            return (hasHandler ? "port" : "port without a handler") + (messages == 0 ? "" : ", waiting messages: \(messages)")
                + (senders == 0 ? "" : ", waiting senders: \(senders)")
        }
    }
}

struct WeakSource: Sendable {
    weak var source: RunLoop.Source?
}
