// What clients may make a port keep: bytes of messages that have not come whole, replies that they do not read, descriptors.
//
// Nothing is dropped because there is much of it. A connection that finds no room is not read, so that its sender waits; one that keeps others
// waiting and makes no progress is closed.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension PortServer {
    // MARK: Reading

    /// How many bytes may be read now; nil when the connection has to wait.
    func bytesToRead(_ connection: ServedConnection) -> Int? {
        if connection.isWaiting { return nil }
        if heldDescriptors > descriptorLimit / 2 && connection.inlet.heldBytes == 0 && hasDescriptors(connection.process) {
            // The next frame may bring more. One that has begun has brought all of its own, and goes on.
            connection.isWaiting = true
            waitingForDescriptors.append(connection)
            return nil
        }
        let needed = connection.inlet.announcedBytes
        if needed > PortQuota.allowance && quota.room(of: connection.token) == 0 {
            if !quota.ask(connection.token, process: connection.process, for: needed) {
                connection.isWaiting = true
                return nil
            }
            begin(connection)
        }
        return quota.room(of: connection.token) + PortQuota.allowance - connection.inlet.heldBytes
    }

    /// A frame has gone out of the connection's buffer.
    func giveBackRoom(_ connection: ServedConnection) {
        if connection.inlet.heldBytes <= PortQuota.allowance && quota.room(of: connection.token) > 0 {
            resume(quota.giveBack(connection.token))
        }
    }

    func resume(_ tokens: [UInt64]) {
        for token in tokens {
            guard let connection = connections[token] else { continue }
            begin(connection)
            resume(connection)
        }
    }

    private func resume(_ connection: ServedConnection) {
        connection.isWaiting = false
        if !connection.isClosed { settle(connection) }
    }

    private func resumeThoseThatWaitForDescriptors() {
        let waiting = waitingForDescriptors
        waitingForDescriptors = []
        for connection in waiting { resume(connection) }
    }

    private func hasDescriptors(_ process: Int32) -> Bool {
        connections.values.contains { $0.process == process && $0.countedDescriptors > 0 }
    }

    // MARK: Descriptors

    func manner(_ connection: ServedConnection) -> FrameInlet.Manner {
        // Earlier descriptors have not been closed yet: further ones could use up all that the process may have.
        if !maySendDescriptors(connection.process) { return .refusing }
        if connection.isWary { return .wary }
        guard let end = waryUntil else { return .trying }
        if clock() < end { return .wary }
        waryUntil = nil
        return .trying
    }

    /// Whether the closer is not held up: as a whole, and by the descriptors of this process.
    func maySendDescriptors(_ process: Int32) -> Bool {
        let pending = DescriptorCloser.pending
        if pending <= descriptorLimit { return true }
        return pending <= 2 * descriptorLimit && DescriptorCloser.pending(from: process) <= descriptorLimit
    }

    func hasRunShort() { waryUntil = clock().advanced(by: .seconds(1)) }

    // MARK: Replies

    /// Whether a request of this connection has to wait until replies have been read: there are too many, and some are its process's.
    func mustWaitForReplies(_ connection: ServedConnection) -> Bool {
        unsentBytes > quota.pool && unsentByProcess[connection.process] != nil
    }

    // MARK: Counting

    func count(_ connection: ServedConnection) {
        countReplies(connection)
        let descriptors = connection.inlet.heldDescriptors
        if descriptors == connection.countedDescriptors { return }
        if connection.countedDescriptors == 0 { connection.heldSince = ticks }
        let isLess = descriptors < connection.countedDescriptors
        heldDescriptors += descriptors - connection.countedDescriptors
        connection.countedDescriptors = descriptors
        // Ends: each turn closes one that holds some.
        while heldDescriptors > descriptorLimit, dropStalest() {}
        // Also while there are many: its process may have none left.
        if isLess && !waitingForDescriptors.isEmpty { resumeThoseThatWaitForDescriptors() }
    }

    private func countReplies(_ connection: ServedConnection) {
        let unsent = connection.unsentBytes
        if unsent == connection.countedUnsent { return }
        if connection.countedUnsent == 0 { begin(connection) }
        unsentBytes += unsent - connection.countedUnsent
        let ofProcess = unsentByProcess[connection.process, default: 0] + unsent - connection.countedUnsent
        unsentByProcess[connection.process] = ofProcess == 0 ? nil : ofProcess
        connection.countedUnsent = unsent
        if unsent == 0 && !deferred.isEmpty { takeUpDeferred() }
    }

    private func takeUpDeferred() {
        // `settle` watches each of them again when its turn comes.
        for connection in deferred { connection.isDeferred = false }
        ready += deferred
        deferred = []
    }

    /// It has gone: what it kept is free.
    func uncount(_ connection: ServedConnection) {
        heldDescriptors -= connection.countedDescriptors
        connection.countedDescriptors = 0
        countReplies(connection)
        resume(quota.giveBack(connection.token))
        if !waitingForDescriptors.isEmpty { resumeThoseThatWaitForDescriptors() }
        if !deferred.isEmpty { takeUpDeferred() }
    }

    /// Of the process that has the most descriptors here, so that one process cannot have another one's connections closed by sending its own.
    private func dropStalest() -> Bool {
        var amounts: [Int32: Int] = [:]
        for connection in connections.values { amounts[connection.process, default: 0] += connection.countedDescriptors }
        let most = amounts.max { $0.value < $1.value }?.key
        let stalest = connections.values.filter { $0.process == most && $0.countedDescriptors > 0 }.min {
            ($0.heldSince, $0.token) < ($1.heldSince, $1.token)
        }
        guard let stalest else { return false }
        drop(stalest)
        return true
    }

    // MARK: Patience

    var somebodyWaits: Bool { quota.hasWaiters || !deferred.isEmpty || !waitingForDescriptors.isEmpty }

    /// The connection's time begins.
    private func begin(_ connection: ServedConnection) {
        connection.mark = patience.mark(held: connection.inlet.heldBytes, unsent: connection.unsentBytes)
    }

    /// Closes the connections that keep others waiting and have made no progress for long.
    func dropStalled() {
        if !somebodyWaits { return patience.rest() }
        if !patience.look(clock()) { return }
        for connection in connections.values.sorted(by: { $0.token < $1.token }) where isStalled(connection) {
            // What has come in the meantime counts.
            if connection.outlets.isEmpty { read(connection) } else { _ = connection.flush() }
            if isStalled(connection) { drop(connection) } else { settle(connection) }
        }
    }

    private func isStalled(_ connection: ServedConnection) -> Bool {
        if connection.isClosed { return false }
        let keepsSomething = quota.room(of: connection.token) > 0 || connection.countedDescriptors > 0 || !connection.outlets.isEmpty
        // A message that is whole waits for the port.
        if !keepsSomething || connection.isWaiting || (connection.outlets.isEmpty && connection.inlet.hasNext()) {
            begin(connection)
            return false
        }
        if patience.isProgress(connection.mark, held: connection.inlet.heldBytes, unsent: connection.unsentBytes) { begin(connection) }
        return patience.isOver(connection.mark)
    }
}
