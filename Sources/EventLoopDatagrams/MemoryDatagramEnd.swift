// A socket's end of a network in memory.
//
// Lifecycle: retained by its core, and by its network until it is closed. It retains its source, and with it the core, until the source has left the
// loop, so that no release under a lock is the last one of a source that still has to leave.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

final class MemoryDatagramEnd: DatagramTransport {
    /// What a socket of the kernel has room for by default on Linux (net.core.rmem_default), and what it counts for a datagram beside its bytes.
    private static let (usualLimit, overhead) = (212_992, 768)

    let network: MemoryDatagramNetwork
    /// Under which the network knows it.
    let name: RunLoop.SocketAddress
    let localAddress: RunLoop.SocketAddress
    let peer: RunLoop.SocketAddress?
    /// The name of the peer.
    private let peerName: RunLoop.SocketAddress?
    private let limit: Int
    private let mark = ProcessMark()

    /// A datagram on its way.
    private struct Departure {
        let datagram: Datagram
        let receiver: MemoryDatagramEnd
        let delay: Duration
    }

    private struct State {
        var source: RunLoop.CustomSource?
        var place: (loop: RunLoop, mode: RunLoop.Mode)?
        var readsNow = true
        var input = DatagramQueue<Datagram>()
        /// Of `input`, as the limit counts them.
        var bytes = 0
        var drops: UInt32 = 0
        /// What the next call reports.
        var error: Int32 = 0
        /// Sent under the lock of the socket, and not yet delivered.
        var departures = DatagramQueue<Departure>()
        /// A thread delivers one of those that are not late.
        var isDelivering = false

        var isReady: Bool { readsNow && (error != 0 || !input.isEmpty) }

        /// The next one for a thread in `deliverSent`; nil if none is left, or if another thread delivers. `delivers`: whether the caller is the
        /// thread that `isDelivering` is about.
        mutating func takeDeparture(_ delivers: inout Bool) -> Departure? {
            if isDelivering && !delivers { return nil }
            let next: Departure? = departures.isEmpty ? nil : departures.removeFirst()
            delivers = next.map { $0.delay <= .zero } ?? false
            isDelivering = delivers
            return next
        }
    }
    private let state = LoopLock(State())

    init(
        in network: MemoryDatagramNetwork, _ name: RunLoop.SocketAddress, localAddress: RunLoop.SocketAddress,
        peer: RunLoop.SocketAddress?, peerName: RunLoop.SocketAddress?, limit: Int?
    ) {
        (self.network, self.name, self.localAddress, self.peer, self.peerName) = (network, name, localAddress, peer, peerName)
        self.limit = limit ?? Self.usualLimit
    }

    var kind: Int32 { name.kind }
    var isOurs: Bool { mark.isOurs }
    /// It always has room.
    var reportsRoom: Bool { true }
    /// No lock of another socket is taken, and no loop changed, under the lock of the sender.
    var deliversLater: Bool { true }
    var drops: UInt32? { state.withLock { $0.drops } }

    func accepts(_ sender: RunLoop.SocketAddress) -> Bool { peerName == nil || peerName == sender }

    // MARK: On the loop

    func open(
        for core: DatagramCore, on loop: RunLoop, mode: RunLoop.Mode, label: String, file: StaticString, line: UInt
    ) throws(RunLoop.SourceError) {
        let source = RunLoop.CustomSource(label: label, file: file, line: line) { [self] in
            if state.withLock({ $0.isReady }) { core.readyForDatagrams(.read) }
            // Signals the source again if something is still ready.
            change { _ in }
        }
        source.endWithLoop()
        state.withLock { ($0.source, $0.place) = (source, (loop, mode)) }
        guard loop.add(source, forMode: mode) else {
            source.invalidate()
            didLeaveLoop(isForeign: false)
            throw .loopEnded
        }
        source.onInvalidation { _ in core.transportDidEnd(nil) }
        // What has arrived before the source was there has signaled nobody.
        change { _ in }
    }

    /// Changes the state, and signals the source if there is something to receive. A signal stays pending until the loop runs in the mode.
    private func change(_ body: (inout State) -> Void) {
        let (source, loop) = state.withLock { state in
            body(&state)
            return state.isReady ? (state.source, state.place?.loop) : (nil, nil)
        }
        guard let source, let loop, !source.isSignaled else { return }
        source.signal()
        loop.wakeUp()
    }

    func setInterest(_ events: RunLoop.DescriptorSource.Events) { change { $0.readsNow = events.contains(.read) } }

    func close() { /* DOES CALLOUT */
        network.remove(self)
        state.withLock { $0.source }?.invalidate()
    }

    func didLeaveLoop(isForeign: Bool) {
        network.remove(self)
        let released = state.withLock { state in
            defer { (state.source, state.place) = (nil, nil) }
            return state.source
        }
        withExtendedLifetime(released) {}
    }

    // MARK: Datagrams

    /// Keeps a datagram of this end for `deliverSent`.
    func depart(_ datagram: Datagram, to receiver: MemoryDatagramEnd, after delay: Duration) {
        state.withLock { $0.departures.append(Departure(datagram: datagram, receiver: receiver, delay: delay)) }
    }

    /// One thread at a time delivers, and other threads leave their datagrams to it, so that these arrive in the order of the sends. For a late
    /// one it sets a timer, which may call out to code that sends and waits for the answer. So others may deliver meanwhile.
    func deliverSent() { /* DOES CALLOUT */
        var delivers = false
        while let next = state.withLock({ $0.takeDeparture(&delivers) }) {  // ends: each iteration removes a departure
            next.receiver.arrive(next.datagram, after: next.delay)
        }
    }

    private func arrive(_ datagram: Datagram, after delay: Duration) { /* DOES CALLOUT, if it is late */
        guard delay > .zero, let (loop, mode) = state.withLock({ $0.place }) else { return arrive(datagram) }
        loop.perform(after: delay, inModes: [mode]) { [weak self] in self?.arrive(datagram) }
    }

    private func arrive(_ datagram: Datagram) {
        change { state in
            let size = datagram.bytes.count + Self.overhead
            if state.bytes + size > limit {
                state.drops &+= 1
                return
            }
            state.bytes += size
            state.input.append(datagram)
        }
    }

    /// Nobody has the address that it has sent to. Only a socket with a peer hears of it, as with UDP.
    func hearsRefusal() { if peer != nil { change { $0.error = ECONNREFUSED } } }

    private func takeError() -> Int32 {
        state.withLock { state in
            defer { state.error = 0 }
            return state.error
        }
    }

    func receive(upTo maximumSize: Int, into collector: inout DatagramCollector) -> Int32 {
        let error = takeError()
        if error != 0 { return -error }
        let batch = state.withLock { state in
            (0..<min(state.input.count, 64)).map { _ in
                let datagram = state.input.removeFirst()
                state.bytes -= datagram.bytes.count + Self.overhead
                return datagram
            }
        }
        for var datagram in batch {
            datagram.isTruncated = datagram.bytes.count > maximumSize
            if datagram.isTruncated { datagram.bytes = Array(datagram.bytes.prefix(maximumSize)) }
            collector.take { _ in datagram }
        }
        return batch.isEmpty ? -EAGAIN : Int32(batch.count)
    }

    func send(_ datagram: DatagramState.Outgoing) -> Int32 {
        let error = takeError()
        if error != 0 { return error }
        guard let target = datagram.peer.flatMap({ RunLoop.SocketAddress($0.pointer.pointee) }) ?? peer else { return EDESTADDRREQ }
        return network.send(datagram.bytes, from: self, to: target)
    }

    func sendBatch(of queue: DatagramQueue<DatagramState.Outgoing>) -> Int32 {
        let code = send(queue[0])
        return code == 0 ? 1 : -code
    }

    // MARK: What needs a descriptor

    func setMember(of group: RunLoop.SocketAddress, _ interface: String?, joins: Bool) throws(RunLoop.SourceError) {
        throw .system(operation: "\(joins ? "join" : "leave") \(group) in memory", errno: EOPNOTSUPP)
    }

    func beginUse() -> Int32? { nil }

    func endUse() {}
}
