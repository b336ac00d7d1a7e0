// The connections of a LocalMessagePort, and which one to close when there are too many.

internal import EventLoop

/// The connections of a port by token.
///
/// The thread that serves the port adds and removes connections. `shutDownAll` may run on any thread at the same time.
final class ConnectionTable: @unchecked Sendable {
    // SAFETY: a lock, and what only the thread that serves the port touches.

    /// The descriptors for `shutDownAll`; nil afterwards.
    private let descriptors = LoopLock<[UInt64: Int32]?>([:])
    // SAFETY: touched only by the thread that serves the port.
    private var connections: [UInt64: ServedConnection] = [:]
    private var lastToken: UInt64

    /// - Parameter lastToken: the tokens up to this one have other uses.
    init(lastToken: UInt64) { self.lastToken = lastToken }

    var size: Int { connections.count }
    var everyConnection: Dictionary<UInt64, ServedConnection>.Values { connections.values }
    func connection(_ token: UInt64) -> ServedConnection? { connections[token] }

    /// Reserves a token for a new connection. Returns nil after `shutDownAll`.
    func reserveToken(for descriptor: Int32) -> UInt64? {
        lastToken += 1
        let token = lastToken
        return descriptors.withLock { descriptors in
            descriptors?[token] = descriptor
            return descriptors == nil ? nil : token
        }
    }

    /// Gives back a token that no connection got.
    func release(_ token: UInt64) { descriptors.withLock { $0?[token] = nil } }

    func register(_ connection: ServedConnection) { connections[connection.token] = connection }

    /// Called before the descriptor is closed: `shutDownAll` must not shut down another socket that reuses its number.
    func unregister(_ connection: ServedConnection) {
        connections[connection.token] = nil
        _ = descriptors.withLockIfOwn { $0?[connection.token] = nil }
    }

    /// Disconnects all clients. The connections stay in the table until they are closed. Thread-safe.
    func shutDownAll(_ shutDown: (Int32) -> Void) {
        descriptors.withLock { descriptors in
            for descriptor in (descriptors ?? [:]).values { shutDown(descriptor) }
            descriptors = nil
        }
    }

    // MARK: Choosing one to close

    /// The connection that gives up its place for a new one.
    ///
    /// It belongs to the process with the most connections, so a client that opens thousands closes its own. Connections that have never
    /// sent a message go first, then those that were silent longest. Returns nil if `sparesLast` and no process has more than one.
    func leastActive(sparesLast: Bool) -> ServedConnection? {
        var counts: [Int32: Int] = [:]
        for connection in connections.values { counts[connection.process, default: 0] += 1 }
        guard let most = counts.values.max(), most > 1 || !sparesLast else { return nil }
        return connections.values.filter { counts[$0.process] == most }.min {
            ($0.hasSpoken ? 1 : 0, $0.lastHeard, $0.token) < ($1.hasSpoken ? 1 : 0, $1.lastHeard, $1.token)
        }
    }

    /// Of all connections of `process` that hold descriptors, the one that has had no message handled for longest.
    func longestHolder(of process: Int32) -> ServedConnection? {
        connections.values.filter { $0.process == process && $0.countedDescriptors > 0 }.min {
            ($0.heldSince, $0.token) < ($1.heldSince, $1.token)
        }
    }
}
