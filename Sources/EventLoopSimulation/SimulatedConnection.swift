// A connection between two processes: bytes that take time, in order.
//
// Lifecycle: the network holds it until both ends are closed or the run ends; each end's transport holds it, too.

internal import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams

final class SimulatedConnection: @unchecked Sendable {
    // SAFETY: the run's thread alone uses it: its tasks and its loop.

    enum Packet {
        case bytes([UInt8])
        case end
        case reset
    }

    struct End {
        let process: SimulatedProcess
        let incarnation: UInt32
        var source: RunLoop.CustomSource?
        var interest = (read: true, write: false)
        /// Arrived, and read up to `head`.
        var bytes: [UInt8] = []
        var head = 0
        var hasEnded = false
        var isReset = false
        var isClosed = false
        /// Its process crashed: it does nothing any more.
        var isDead = false
        /// Sent by this end, and not read by the other one.
        var outstanding = 0
        var hasFinished = false
        /// On their way to the other end.
        var packets: [Packet] = []
        var lastArrival: UInt64 = 0

        var available: Int { bytes.count - head }
    }

    let network: SimulatedNetwork
    private(set) var ends: [End]
    private let capacity = 262_144

    init(_ network: SimulatedNetwork, from client: SimulatedProcess, to server: SimulatedProcess) {
        self.network = network
        ends = [client, server].map { End(process: $0, incarnation: $0.incarnation) }
    }

    var isOver: Bool { ends.allSatisfy { $0.isClosed || $0.isDead } }

    // MARK: Packets

    private func send(_ packet: Packet, from end: Int) {
        guard let run = network.run else { return }
        ends[end].packets.append(packet)
        let arrival = max(run.now.adding(nanoseconds: run.draw(network.currentLatency)), ends[end].lastArrival)
        ends[end].lastArrival = arrival
        run.schedule(after: arrival - run.now) { [self] in arrive(from: end) }
    }

    /// The next packet of this end arrives, unless the two are partitioned; then it is repeated when that has healed.
    private func arrive(from end: Int) {
        guard let run = network.run else { return }
        if network.isPartitioned(ends[0].process, ends[1].process) {
            return network.whenHealed { [self] in run.schedule(after: run.draw(network.currentLatency)) { [self] in arrive(from: end) } }
        }
        if ends[end].packets.isEmpty { return }
        let packet = ends[end].packets.removeFirst()
        let other = 1 - end
        let names = "\(ends[end].process.name) to \(ends[other].process.name)"
        // When a process crashes, the peers of its open ends are reset. An end that was closed before answers as a closed one.
        if ends[other].isDead && !ends[other].isClosed { return }
        switch packet {
        case .bytes(let bytes):
            run.trace?.say("\(bytes.count) bytes from \(names) arrive")
            if ends[other].isClosed {
                // Nobody reads them: the peer of a closed socket answers with a reset.
                ends[end].outstanding -= bytes.count
                send(.reset, from: other)
            } else if !ends[other].isReset {
                ends[other].bytes += bytes
            }
        case .end:
            run.trace?.say("the end of the stream from \(names) arrives")
            ends[other].hasEnded = true
        case .reset:
            run.trace?.say("a reset from \(names) arrives")
            ends[other].isReset = true
        }
        notify()
    }

    /// The ends of this process do nothing any more; the other end hears of it.
    func processCrashed(_ process: SimulatedProcess, _ incarnation: UInt32) {
        for end in 0..<2 where ends[end].process === process && ends[end].incarnation == incarnation && !ends[end].isDead {
            ends[end].isDead = true
            if !ends[end].isClosed && !ends[1 - end].isDead { send(.reset, from: end) }
        }
    }

    // MARK: Readiness

    func readiness(of end: Int) -> (read: Bool, write: Bool) {
        let this = ends[end]
        if this.isDead { return (false, false) }
        return (
            this.interest.read && (this.isReset || this.available > 0 || this.hasEnded),
            this.interest.write && (this.isReset || this.outstanding < capacity)
        )
    }

    private func notify() {
        for end in 0..<2 {
            let ready = readiness(of: end)
            if ready.read || ready.write { ends[end].source?.signal() }
        }
    }

    // MARK: For the transports

    func open(_ end: Int, _ source: RunLoop.CustomSource) {
        ends[end].source = source
        notify()
    }

    func setInterest(of end: Int, read: Bool, write: Bool) {
        ends[end].interest = (read, write)
        notify()
    }

    func again(_ end: Int) { notify() }

    func read(at end: Int, into space: UnsafeMutableRawBufferPointer) -> TransferResult {
        let count = min(space.count, ends[end].available)
        if count == 0 {
            if ends[end].isReset { return .failed(.system(operation: "read", errno: ECONNRESET)) }
            return ends[end].hasEnded ? .end : .wouldBlock
        }
        let head = ends[end].head
        ends[end].bytes.withUnsafeBytes { space.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[head..<(head + count)])) }
        ends[end].head += count
        if ends[end].available == 0 {
            ends[end].bytes = []
            ends[end].head = 0
        }
        ends[1 - end].outstanding -= count
        notify()
        return .bytes(count)
    }

    func write(at end: Int, _ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult {
        guard let run = network.run else { return .failed(.loopEnded) }
        if ends[end].isReset { return .failed(.system(operation: "write", errno: ECONNRESET)) }
        if ends[end].hasFinished { return .failed(.system(operation: "write", errno: EPIPE)) }
        var bytes: [UInt8] = []
        for part in parts {
            let room = capacity - ends[end].outstanding - bytes.count
            bytes += part.prefix(max(room, 0))
            if room < part.count { break }
        }
        if bytes.isEmpty { return .wouldBlock }
        if run.drawChance(network.currentResetChance) {
            run.trace?.say("the connection between \(ends[0].process.name) and \(ends[1].process.name) is reset")
            ends[end].isReset = true
            // The reset arrives in place of the first packet that is lost.
            ends[end].packets = []
            send(.reset, from: end)
            notify()
            return .failed(.system(operation: "write", errno: ECONNRESET))
        }
        ends[end].outstanding += bytes.count
        send(.bytes(bytes), from: end)
        return .bytes(bytes.count)
    }

    func finishWriting(_ end: Int) {
        if ends[end].hasFinished || ends[end].isReset || ends[end].isDead { return }
        ends[end].hasFinished = true
        send(.end, from: end)
    }

    /// The kernel of a process that closes with unread bytes resets the connection.
    func close(_ end: Int) { close(end, resets: ends[end].available > 0) }

    /// Closes an end that nobody waits for any more. Its kernel answers with a reset.
    func refuse(_ end: Int) { close(end, resets: true) }

    private func close(_ end: Int, resets: Bool) {
        if ends[end].isClosed { return }
        ends[end].isClosed = true
        ends[end].source = nil
        if resets && !ends[end].isReset && !ends[end].isDead { send(.reset, from: end) } else { finishWriting(end) }
        if isOver { network.forget(self) }
    }
}

/// One end of a connection, for a stream.
final class SimulatedTransport: StreamTransport, @unchecked Sendable {
    // SAFETY: the run's thread alone uses it.

    private let connection: SimulatedConnection
    private let end: Int
    private var source: RunLoop.CustomSource?

    init(_ connection: SimulatedConnection, end: Int) { (self.connection, self.end) = (connection, end) }

    func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError) {
        let source = RunLoop.CustomSource(label: label, file: file, line: line) { [connection, end] in
            let ready = connection.readiness(of: end)
            if ready.read || ready.write { events.ready(read: ready.read, write: ready.write) }
            // Signals the source again if something is still ready.
            connection.again(end)
        }
        source.endWithLoop()
        self.source = source
        guard loop.add(source, forMode: mode) else {
            source.invalidate()
            throw .loopEnded
        }
        source.onInvalidation { [connection, end] in
            events.transportWillClose(nil)
            connection.close(end)
            events.transportDidClose()
        }
        connection.open(end, source)
    }

    func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult { connection.read(at: end, into: space) }
    func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult { connection.write(at: end, parts) }
    func finishWriting() { connection.finishWriting(end) }
    func didFinishWriting() {}
    func setInterest(read: Bool, write: Bool) { connection.setInterest(of: end, read: read, write: write) }
    var losesBytesOnClose: Bool { true }
    var isWriteOnly: Bool { false }
    func close() { /* DOES CALLOUT */ if let source { source.invalidate() } else { connection.close(end) } }
    var localAddress: RunLoop.SocketAddress? { nil }
    var peerAddress: RunLoop.SocketAddress? { nil }
}
