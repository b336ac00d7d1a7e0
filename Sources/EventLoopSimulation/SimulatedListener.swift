// A port of a process, from which a stream server accepts.

internal import EventLoop
internal import EventLoopStreams

/// Its queue is that of the kernel: connections are made before they are accepted.
final class SimulatedListener: ServerListener, @unchecked Sendable {
    // SAFETY: the run's thread alone uses it.

    let name: String
    private unowned let process: SimulatedProcess
    private let port: UInt16
    var accept: (@Sendable (IncomingConnection) -> Void)?
    private var queue: [SimulatedTransport] = []
    private var waiter: UnsafeContinuation<Void, Never>?
    private var closed: [@Sendable () -> Void] = []
    private(set) var isRefusing = false
    private var isInvalid = false

    init(_ process: SimulatedProcess, _ port: UInt16) {
        (self.process, self.port) = (process, port)
        name = "\(process.name):\(port)"
    }

    /// A connection has arrived.
    func enqueue(_ connection: SimulatedTransport) {
        queue.append(connection)
        wake()
    }

    /// In a task of the process: accepts until the server does not listen any more.
    func listen() async {
        while !isInvalid {  // ends: with the listener, its process or the run
            if isAccepting, !queue.isEmpty {
                accept?(.transport(queue.removeFirst()))
            } else {
                await withUnsafeContinuation { waiter = $0 }
            }
        }
    }

    private func wake() {
        waiter?.resume()
        waiter = nil
    }

    // MARK: For the server

    var localAddress: RunLoop.SocketAddress? { .unix(path: name) }
    var isAccepting = true { didSet { wake() } }
    func join(_ loop: RunLoop, _ mode: RunLoop.Mode) {}
    func refuseConnections() { isRefusing = true }

    func acceptQueue(limit: Int, _ accept: (IncomingConnection) -> Void) -> Bool { /* DOES CALLOUT */
        for _ in 0..<limit {
            if queue.isEmpty { break }
            accept(.transport(queue.removeFirst()))
        }
        return true
    }

    func endListening() { /* DOES CALLOUT */
        if isInvalid { return }
        (isInvalid, isRefusing, accept) = (true, true, nil)
        for connection in queue { connection.close() }
        queue = []
        if process.listeners[port] === self { process.listeners[port] = nil }
        wake()
        let bodies = closed
        closed = []
        for body in bodies { body() }
    }

    func onClosed(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */ if isInvalid { body() } else { closed.append(body) } }
}
