import Synchronization

extension RunLoop {
    /// The messages that are sent to `port`, in order, one each time a task asks. It is a precondition failure if the port has a handler.
    ///
    /// Each iterator has its own source in `mode` of this loop (by default, all common modes). The source takes a message from the port only while
    /// the loop runs in the mode and the task waits for one. So if the task is slow, messages stay in the port's queue, and senders wait for room or
    /// are refused, as with a slow handler. Several iterators of one port, on any loops, share its messages: each goes to one of them.
    ///
    /// The source is removed when the iteration ends, its task is cancelled, or the iterator is released. The port stays valid, with its messages.
    /// The sequence ends when the port becomes invalid or the loop ends. Thread-safe. The port need not be in a mode. See `Port` for handlers.
    ///
    /// ```
    /// for await message in loop.messages(of: port) { try message.replyPort?.send(answer(to: message)) }
    /// ```
    public func messages(of port: Port, mode: Mode = .common, file: StaticString = #fileID, line: UInt = #line) -> PortMessages {
        precondition(
            !port.hasHandler, "this port passes its messages to its handler; to read messages in a task, make a port without a handler")
        let site = CreationSite(file, line)
        return PortMessages { [self] channel in
            channel.connect(on: self, mode, demand: { (reader: PortReader) in reader.ask() }) {
                let reader = PortReader(port, channel, site)
                port.add(reader)
                return reader
            }
        }
    }

    /// The result of `messages(of:)`.
    public struct PortMessages: AsyncSequence, Sendable {
        public typealias Element = PortMessage
        public typealias Failure = Never
        let connect: @Sendable (SingleElementChannel<PortMessage>) -> Void
        /// Makes the source.
        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: ChannelReader(connect: connect)) }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<PortMessage>
            /// The next message; nil if the task is cancelled, the port is invalid, or the loop has ended.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async -> PortMessage? {
                try? await reader.channel.next(isolation: actor)  // an error says that the port or the loop has ended
            }
        }
    }
}

/// Takes messages from a port for a task that asks for them.
private final class PortReader: RunLoop.Source, @unchecked Sendable {
    // SAFETY: constants and an atomic.
    private let port: RunLoop.Port
    private let channel: SingleElementChannel<RunLoop.PortMessage>
    /// The task waits for a message.
    private let isAsked = Atomic<Bool>(false)

    init(_ port: RunLoop.Port, _ channel: SingleElementChannel<RunLoop.PortMessage>, _ site: CreationSite) {
        (self.port, self.channel) = (port, channel)
        super.init(kind: .messages, recordedKind: .port, label: "messages for a task", site: site)
    }

    deinit { endByLastRelease() }

    func ask() {
        isAsked.store(true, ordering: .sequentiallyConsistent)
        // A sender that came earlier may have found no waiting reader. One that comes now notifies the loop.
        if hasMessage { enqueueMessagesEverywhere() }
    }

    override var hasMessage: Bool { isAsked.load(ordering: .sequentiallyConsistent) && isValid && port.queue.count > 0 }
    override var lastMessage: UInt64 { port.queue.lastNumber }

    override func serveMessage(upTo last: UInt64, onlyOne: Bool) -> Bool { /* DOES CALLOUT */
        // Messages after `last` wait for the next pass, so that a task that asks again at once does not keep this pass from ending.
        guard port.queue.holds(upTo: last), isAsked.exchange(false, ordering: .sequentiallyConsistent) else { return false }
        let isDelivered = channel.deliver {
            guard let message = port.queue.takeFirst() else { return nil }  // another iterator has taken it
            port.queue.makeRoom()  // before the delivery, because the task may ask for the next message at once
            return message
        }
        // After it: what is released here may end the thread, and then the task would wait for ever.
        if isDelivered && port.queue.fillRoom() { port.notifyLoopsOfMessages() }
        return isDelivered
    }

    override var typeDescription: String { "reader of a port" }
}
