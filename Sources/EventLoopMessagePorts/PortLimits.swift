// What clients may make a LocalMessagePort hold: bytes of incomplete messages, replies that they do not read, and descriptors.
//
// Nothing is dropped because there is much of it. A connection without memory for its frame is not read, so its sender waits. A connection
// that keeps others waiting and makes no progress is closed.

internal import EventLoop

/// The accounts of one port, and the decisions that follow from them. `PortServer` carries the decisions out.
///
/// Noncopyable, because a copy would retain its collections at each access.
struct PortLimits: ~Copyable {
    /// How many descriptors of incomplete messages all clients together may make the port hold. Above half of it, processes that hold some
    /// are not read further. Above all of it, the process that holds the most loses a connection.
    private let descriptorLimit: Int

    private(set) var memory: MessageMemory
    var stalls = StallDetector()
    /// Bytes of replies that have not been sent, or not to the end, in total and for each process.
    private(set) var replyBytes = 0
    private var replyBytesByProcess: [Int32: Int] = [:]
    /// Descriptors of incomplete messages, in total and for each process.
    private(set) var heldDescriptors = 0
    private var heldDescriptorsByProcess: [Int32: Int] = [:]
    private var descriptorWaiters: [ServedConnection] = []
    /// The process was out of descriptors recently: until when received ones could be lost.
    private var shortageEnd: RunLoop.Instant?

    /// - Parameters:
    ///   - longestFrame: the size of the longest frame, in bytes.
    ///   - leastMemory: the least memory for all long frames together.
    init(descriptorLimit: Int, longestFrame: Int, leastMemory: Int) {
        self.descriptorLimit = descriptorLimit
        memory = MessageMemory(longest: longestFrame, atLeast: leastMemory)
    }

    /// Whether a connection waits for memory or for descriptors.
    var hasWaiters: Bool { memory.hasWaiters || !descriptorWaiters.isEmpty }

    // MARK: Incoming bytes

    /// How many bytes may be read from a connection now. If it has to wait, marks it as waiting and returns nil.
    mutating func bytesToRead(_ connection: ServedConnection) -> Int? {
        if connection.isWaiting { return nil }
        if heldDescriptors > descriptorLimit / 2 && connection.receiver.heldBytes == 0
            && heldDescriptorsByProcess[connection.process] != nil
        {
            // The next frame may bring descriptors. A frame that has begun has brought all of its own, and may continue.
            waitForDescriptors(connection)
            return nil
        }
        let needed = connection.receiver.announcedBytes
        if needed > MemoryPool.allowance && memory.granted(to: connection.token) == 0 {
            if !memory.request(needed, for: connection.token, process: connection.process) {
                connection.isWaiting = true
                return nil
            }
            restartStallTime(of: connection)
        }
        return memory.granted(to: connection.token) + MemoryPool.allowance - connection.receiver.heldBytes
    }

    /// Releases the memory of a frame that has been taken out of the connection's buffer. Returns the tokens of those that have memory now.
    mutating func releaseMemoryOfServedFrame(_ connection: ServedConnection) -> [UInt64] {
        if connection.receiver.heldBytes > MemoryPool.allowance || memory.granted(to: connection.token) == 0 { return [] }
        return memory.release(connection.token)
    }

    // MARK: Descriptors

    /// How to receive from a connection.
    mutating func receiveMode(for connection: ServedConnection, _ now: () -> RunLoop.Instant) -> FrameReceiver.Mode {
        // Earlier descriptors have not been closed yet: further ones could use up all that the process may have.
        if isClosingHeldUp(by: connection.process) { return .refusing }
        if connection.isNearDescriptorLimit { return .peeking }
        guard let end = shortageEnd else { return .nonblocking }
        if now() < end { return .peeking }
        shortageEnd = nil
        return .nonblocking
    }

    /// Marks the connection as waiting, until others hold fewer or at the latest until the next check for stalls.
    mutating func waitForDescriptors(_ connection: ServedConnection) {
        connection.isWaiting = true
        descriptorWaiters.append(connection)
    }

    /// Whether the closer is held up, as a whole or for this process.
    private func isClosingHeldUp(by process: Int32) -> Bool {
        let pending = DescriptorCloser.pending
        if pending <= descriptorLimit { return false }
        return isClosingHeldUp || DescriptorCloser.pending(from: process) > descriptorLimit
    }

    /// Whether so many descriptors wait to be closed that no further client is accepted.
    var isClosingHeldUp: Bool { DescriptorCloser.pending > 2 * descriptorLimit }

    /// For a second, received descriptors are peeked at first, so that none is lost.
    mutating func beginShortage(_ now: RunLoop.Instant) { shortageEnd = now.advanced(by: .seconds(1)) }

    /// Counts the descriptors of a connection again. Returns true if it holds fewer than before.
    mutating func countDescriptors(_ connection: ServedConnection, round: UInt64) -> Bool {
        let held = connection.isClosed ? 0 : connection.receiver.heldDescriptors
        let difference = held - connection.countedDescriptors
        if difference == 0 { return false }
        if connection.countedDescriptors == 0 { connection.heldSince = round }
        connection.countedDescriptors = held
        heldDescriptors += difference
        Self.add(difference, to: &heldDescriptorsByProcess, connection.process)
        return difference < 0
    }

    /// The process that loses a connection, because the port holds too many descriptors: the one that holds the most, so that no process
    /// can cost another one a connection by sending its own. Nil while the limit is kept.
    var processOverDescriptorLimit: Int32? {
        heldDescriptors > descriptorLimit ? heldDescriptorsByProcess.max { $0.value < $1.value }?.key : nil
    }

    /// Removes and returns the connections that wait because of descriptors.
    mutating func takeDescriptorWaiters() -> [ServedConnection] {
        defer { descriptorWaiters = [] }
        return descriptorWaiters
    }

    // MARK: Replies

    /// Whether a request of this connection has to wait: clients have left too many replies unread, and some are its own process's.
    func mustDefer(_ connection: ServedConnection) -> Bool {
        replyBytes > memory.longPoolSize && replyBytesByProcess[connection.process] != nil
    }

    /// Counts the unsent replies of a connection again. Returns true if it has none any more.
    mutating func countReplies(_ connection: ServedConnection) -> Bool {
        let held = connection.replyBytes
        let difference = held - connection.countedReplies
        if difference == 0 { return false }
        if connection.countedReplies == 0 { restartStallTime(of: connection) }
        connection.countedReplies = held
        replyBytes += difference
        Self.add(difference, to: &replyBytesByProcess, connection.process)
        return held == 0
    }

    private static func add(_ difference: Int, to sums: inout [Int32: Int], _ process: Int32) {
        let sum = sums[process, default: 0] + difference
        sums[process] = sum == 0 ? nil : sum
    }

    // MARK: The end of a connection

    /// Releases everything that a closed connection held. Returns the tokens of those that have memory now.
    mutating func release(_ connection: ServedConnection) -> [UInt64] {
        _ = countDescriptors(connection, round: 0)
        _ = countReplies(connection)
        return memory.release(connection.token)
    }

    // MARK: Stalls

    mutating func restartStallTime(of connection: ServedConnection) {
        connection.stallMark = stalls.mark(held: connection.receiver.heldBytes, unsent: connection.unsentBytes)
    }

    /// Whether the connection holds something that others may wait for, and has made too little progress for too long. `isMemoryWanted`: others
    /// wait for memory.
    mutating func isStalled(_ connection: ServedConnection, isMemoryWanted: Bool) -> Bool {
        if connection.isClosed { return false }
        let hasMemory = memory.granted(to: connection.token) > 0
        let holdsSomething = (hasMemory && isMemoryWanted) || connection.countedDescriptors > 0 || !connection.outgoing.isEmpty
        // With memory, it can only wait until earlier descriptors have been closed. That may take as long as its process likes.
        let waitsForOthers = connection.isWaiting && !hasMemory
        // A complete message waits for the port, not for the client.
        let hasCompleteFrame = connection.outgoing.isEmpty && connection.receiver.hasNext()
        if !holdsSomething || waitsForOthers || hasCompleteFrame {
            restartStallTime(of: connection)
            return false
        }
        let mark = connection.stallMark
        if stalls.isProgress(since: mark, held: connection.receiver.heldBytes, unsent: connection.unsentBytes) {
            restartStallTime(of: connection)
        }
        return stalls.isOver(connection.stallMark)
    }
}
