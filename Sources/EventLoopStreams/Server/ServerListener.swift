// What a server accepts connections from: a listening socket, or a port of a simulated network.

internal import CStreams
package import EventLoop

/// A connection that was accepted, and has no stream yet.
package enum IncomingConnection: Sendable {
    case descriptor(Int32)
    case transport(any StreamTransport)

    func refuse() { /* DOES CALLOUT */
        switch self {
        case .descriptor(let descriptor): cstreams_close(descriptor)
        case .transport(let transport): transport.close()
        }
    }
}

/// Thread-safe, as `RunLoop.SocketSource` is.
package protocol ServerListener: AnyObject, Sendable {
    var localAddress: RunLoop.SocketAddress? { get }
    /// Connections wait in its queue while this is false.
    var isAccepting: Bool { get set }
    /// Whether others may have it, too, and accept what this server leaves in the queue.
    var isAdopted: Bool { get }
    /// Why it has ended by itself; nil if it has not.
    var failure: RunLoop.SourceError? { get }
    func join(_ loop: RunLoop, _ mode: RunLoop.Mode)
    /// Refuses new connections; those in the queue stay. If it is adopted, only accepts no more by itself.
    func refuseConnections() /* DOES CALLOUT */
    /// False if descriptors or memory ran out before the queue was empty.
    func acceptQueue(limit: Int, _ accept: (IncomingConnection) -> Void) -> Bool /* DOES CALLOUT */
    /// Closes it, with what is in its queue.
    func endListening() /* DOES CALLOUT */
    func onClosed(_ body: @escaping @Sendable () -> Void) /* DOES CALLOUT */
}

extension ServerListener {
    package var isAdopted: Bool { false }
    package var failure: RunLoop.SourceError? { nil }
}

extension RunLoop.SocketSource: ServerListener {
    package func join(_ loop: RunLoop, _ mode: RunLoop.Mode) { loop.add(self, forMode: mode) }
    package func acceptQueue(limit: Int, _ accept: (IncomingConnection) -> Void) -> Bool { /* DOES CALLOUT */
        acceptWaiting(limit: limit) { accept(.descriptor($0)) }
    }
    package func endListening() { /* DOES CALLOUT */ invalidate() }
    package func onClosed(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */ onInvalidation(body) }
}
