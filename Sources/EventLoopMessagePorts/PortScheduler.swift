// Whose turn it is at a LocalMessagePort.

internal import EventLoop

/// The connections that have a complete frame, in the order of their turns.
///
/// Each connection gets one message per turn. The connection that was served last is read first, without asking the kernel, because a
/// client that waits for its reply sends its next request right afterwards.
///
/// Noncopyable, because a copy would retain its connections at each access.
struct PortScheduler: ~Copyable {
    /// How many turns in a row go to the last active connection before the kernel is asked for others. Others that are ready stay ready.
    private static let lastActiveLimit = 16

    private var ready: [ServedConnection] = []
    private var nextIndex = 0
    /// Their frames wait until clients have read replies.
    private var deferred: [ServedConnection] = []
    private var lastActive: ServedConnection?
    private var lastActiveTurns = 0
    /// The number of rounds so far: the port's logical time.
    private(set) var round: UInt64 = 0

    var hasTurns: Bool { nextIndex < ready.count }
    var hasDeferred: Bool { !deferred.isEmpty }
    var testsOnlyReadyLength: Int { ready.count }

    mutating func beginRound() { round += 1 }

    /// Queues a connection that is not queued.
    mutating func enqueue(_ connection: ServedConnection) {
        connection.isQueued = true
        ready.append(connection)
    }

    /// The next connection, which stays marked as queued until the caller has served or deferred it.
    mutating func nextTurn() -> ServedConnection? {
        guard hasTurns else { return nil }
        let connection = ready[nextIndex]
        nextIndex += 1
        // A busy port never reaches the end of the list, so the served part is also removed when it is the larger one.
        if nextIndex == ready.count {
            ready.removeAll(keepingCapacity: true)
            nextIndex = 0
        } else if nextIndex >= 64 && nextIndex > ready.count - nextIndex {
            ready.removeFirst(nextIndex)
            nextIndex = 0
        }
        return connection
    }

    mutating func deferTurn(of connection: ServedConnection) {
        connection.isDeferred = true
        deferred.append(connection)
    }

    /// Queues all deferred connections again.
    mutating func resumeDeferred() {
        if deferred.isEmpty { return }
        for connection in deferred { connection.isDeferred = false }
        ready += deferred
        deferred = []
    }

    mutating func dropTurns() { (ready, nextIndex) = ([], 0) }

    // MARK: The last active connection

    /// The connection to read without asking the kernel; nil if others have to get their chance.
    mutating func lastActiveConnection() -> ServedConnection? {
        guard let connection = lastActive, lastActiveTurns < Self.lastActiveLimit, !hasTurns else {
            forgetLastActive()
            return nil
        }
        lastActiveTurns += 1
        return connection
    }

    /// The only connection that the kernel has reported.
    mutating func setLastActive(_ connection: ServedConnection?) { lastActive = connection }

    mutating func forgetLastActive() { (lastActive, lastActiveTurns) = (nil, 0) }
}
