// The requests that the demo sends to itself: a few connections on one loop, each with one request in flight.

import EventLoop

/// Belongs to the thread that creates it.
final class Load {
    let recorder: Recorder
    private let port: UInt16
    private var connections: [Int: Connection] = [:]
    private var isStopping = false

    private(set) var answers: UInt64 = 0
    private(set) var failures = 0
    private(set) var firstFailure: String?
    private(set) var connectionsMade = 0
    /// Since the last `takeSecond`.
    private var second = Latency()
    private(set) var latency = Latency()

    /// After this many requests a client disconnects and another replaces it, as real clients do. This also balances the
    /// loops: with SO_REUSEPORT the kernel picks a connection's loop once, when the connection is made.
    private static let requestsPerConnection = 500

    init(port: UInt16, recorder: Recorder) {
        (self.port, self.recorder) = (port, recorder)
    }

    /// All connections are closed.
    var isDone: Bool { connections.isEmpty }

    func start(connections count: Int) throws(DemoError) {
        for number in 1...count { try connect(number) }
    }

    /// Closes each connection after the answer it waits for.
    func finish() {
        isStopping = true
    }

    /// Closes all connections now.
    func abandon() {
        for connection in connections.values { connection.close() }
        connections = [:]
    }

    /// The measurements since the last call.
    func takeSecond() -> Latency {
        defer { second.reset() }
        return second
    }

    /// Counts an answer, and returns what `connection` should do next.
    func connection(_ connection: Connection, answeredAfter nanoseconds: UInt64) -> Connection.Next {
        answers += 1
        second.record(nanoseconds)
        latency.record(nanoseconds)
        if isStopping {
            connections[connection.number] = nil
            return .close
        }
        guard connection.answered == Load.requestsPerConnection else { return .askAgain }
        replace(connection)
        return .close
    }

    func connection(_ connection: Connection, failed reason: String) {
        failures += 1
        firstFailure = firstFailure ?? reason
        connection.close()
        connections[connection.number] = nil
    }

    private func connect(_ number: Int) throws(DemoError) {
        connections[number] = try Connection(number: number, load: self, port: port)
        connectionsMade += 1
    }

    private func replace(_ connection: Connection) {
        do throws(DemoError) {
            try connect(connection.number)
        } catch {
            failures += 1
            firstFailure = firstFailure ?? error.sentence
            connections[connection.number] = nil
        }
    }
}
