// Connections that keep others waiting, and the alarm that ends the wait of a port.

internal import CPlatform
internal import EventLoop

extension PortServer {
    /// Whether a connection waits for something that another one may hold.
    var hasWaiters: Bool { limits.hasWaiters || scheduler.hasDeferred }

    /// Closes the connections that keep others waiting and have made too little progress for too long.
    func dropStalled() {
        if !hasWaiters { return limits.stalls.pause() }
        if !limits.stalls.advance(to: clock()) { return }
        // Meanwhile descriptors may have been closed.
        resumeDescriptorWaiters()
        // Each that has kept others waiting is closed, also if the memory of the first is enough for them.
        let isWanted = limits.memory.hasWaiters
        let connections = table.everyConnection.sorted { $0.token < $1.token }
        for connection in connections where limits.isStalled(connection, isMemoryWanted: isWanted) {
            // Progress since the last read counts.
            if connection.outgoing.isEmpty { read(connection) } else { _ = connection.flush() }
            if limits.isStalled(connection, isMemoryWanted: isWanted) { drop(connection) } else { update(connection) }
        }
    }

    /// Sets the alarm for the next turn, retry or check, whichever is first.
    func updateAlarm() {
        var due: Int64 = 1
        if !scheduler.hasTurns {
            if hasWaiters && limits.stalls.nextCheck == nil { dropStalled() }
            due = min(acceptor.nextRetry?.nanoseconds ?? .max, limits.stalls.nextCheck?.nanoseconds ?? .max)
            if due == .max { due = 0 }
        }
        if due == alarm { return }
        alarm = due
        var set = set
        cplatform_port_set_alarm(&set, due)
    }
}
