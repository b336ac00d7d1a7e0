// The messages of a port, for a task.

import Synchronization

extension RunLoop {
    /// The messages that are sent to `port`, one each time a task asks, in order. The port is one without a handler (a precondition
    /// failure).
    ///
    /// Each iterator has a source of its own in `mode` of this loop (by default all common modes), made with the iterator, which takes a
    /// message from the port while its task waits for one and at no other time. So a slow task has its messages in the port's queue, and
    /// its senders wait for room or are refused, as with a slow handler. While the loop does not run in the mode nothing is taken. Several
    /// iterators of one port, on one loop or several, share its messages: each goes to one of them.
    ///
    /// The source goes when the iteration ends, its task is cancelled, or the iterator is let go of. The port stays: its messages wait for
    /// the next iteration, and one that was on its way to a task that was cancelled comes first. The sequence ends when the port is
    /// invalid, and when the loop has ended.
    ///
    /// ```
    /// for await message in loop.messages(of: port) { try message.replyPort?.send(answer(to: message)) }
    /// ```
    ///
    /// Thread-safe. The port need not be in a mode. For handlers on the loop's thread, see `Port`.
    public func messages(
        of port: Port, mode: Mode = .common, file: StaticString = #fileID, line: UInt = #line
    ) -> PortMessages {
        precondition(!port.hasHandler, "a port's messages go to its handler; make a port without one to read them in a task")
        return PortMessages(loop: self, port: port, mode: mode, site: CreationSite(file, line))
    }

    /// What `messages(of:)` makes.
    public struct PortMessages: AsyncSequence, Sendable {
        public typealias Element = PortMessage
        public typealias Failure = Never

        let loop: RunLoop
        let port: Port
        let mode: Mode
        let site: CreationSite

        /// Makes the source.
        public func makeAsyncIterator() -> AsyncIterator {
            let channel = SingleElementChannel<PortMessage>()
            let reader = PortReader(port, channel, site)
            reader.onInvalidation { channel.end() }
            // The loop alone holds the source, so that it goes with the loop.
            channel.connect(demand: { [weak reader] in reader?.ask() }, removal: { [weak reader] in reader?.invalidate() })
            port.add(reader)
            // An ended loop refuses it.
            if !loop.add(reader, forMode: mode) { reader.invalidate() }
            return AsyncIterator(reader: ChannelReader(channel))
        }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<PortMessage>

            /// The next message; nil when the task is cancelled, the port is invalid or the loop has ended.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async -> PortMessage? {
                // Nobody ends this channel with a failure.
                try? await reader.channel.next(isolation: actor)
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
        super.init(kind: .messages, label: "messages for a task", site: site)
    }

    /// The task has come to wait.
    func ask() {
        isAsked.store(true, ordering: .sequentiallyConsistent)
        // A sender that came before may have found nobody waiting; one that comes now tells.
        if hasMessage { enqueueMessagesEverywhere() }
    }

    override var hasMessage: Bool { isAsked.load(ordering: .sequentiallyConsistent) && isValid && port.queue.count > 0 }

    override var lastMessage: UInt64 { port.queue.lastNumber }

    override func serveMessage(upTo last: UInt64, onlyOne: Bool) -> Bool {
        // A task that asks again at once does not keep the pass from ending.
        guard port.queue.holds(upTo: last), isAsked.exchange(false, ordering: .sequentiallyConsistent) else { return false }
        guard let message = port.queue.takeFirst() else {
            // Another iterator was faster.
            isAsked.store(true, ordering: .sequentiallyConsistent)
            return false
        }
        // Counted before: the task may ask for the next one at once.
        let mustTell = port.queue.countDelivery()
        if !channel.hand(message) {
            port.queue.putBackDelivered(message)
            port.notifyLoopsOfMessages()
            return false
        }
        if mustTell { port.notifyLoopsOfMessages() }
        return true
    }

    override var typeDescription: String { "reader of a port" }
}

extension RunLoop.Port {
    /// Has a reader told of messages, and ended with the port.
    fileprivate func add(_ reader: RunLoop.Source) {
        readers.withLock { readers in
            readers.removeAll { $0.source == nil }
            readers.append(WeakSource(source: reader))
        }
        // Invalidated meanwhile, or before: whoever did it may not have seen the reader.
        if !isValid { reader.invalidate() }
    }
}
