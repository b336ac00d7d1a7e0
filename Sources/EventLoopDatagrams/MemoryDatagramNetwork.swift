// A network in memory, for tests. The sockets of a network reach each other, and nothing else.
//
// Deterministic if its sockets are on one loop: what happens to a datagram is drawn from the seed, in the order of the sends.

package import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams

package final class MemoryDatagramNetwork: Sendable {
    /// What happens to what is sent from now on.
    package struct Weather: Sendable {
        package var latency: ClosedRange<Duration> = .zero ... .zero
        package var lossChance = 0.0
        package var duplicateChance = 0.0
    }

    private struct State {
        var ends: [RunLoop.SocketAddress: MemoryDatagramEnd] = [:]
        var weather = Weather()
        var random: SeededRandom
        /// Where the search for a free port begins: the first of those that are for clients (RFC 6335).
        var nextPort: UInt16 = 49_152
    }
    private let state: LoopLock<State>

    package init(seed: UInt64) { state = LoopLock(State(random: SeededRandom(seed: seed))) }

    package var weather: Weather { state.withLock { $0.weather } }

    package func changeWeather(_ change: (inout Weather) -> Void) { state.withLock { change(&$0.weather) } }

    /// Makes a socket. Without `local` it gets the loopback address of the peer's family; one of both is needed.
    package func socket(
        from local: RunLoop.SocketAddress?, to peer: RunLoop.SocketAddress?, on loop: RunLoop, mode: RunLoop.Mode,
        options: DatagramSocket.Options, label: String?, file: StaticString, line: UInt
    ) throws(RunLoop.SourceError) -> DatagramSocket {
        options.check(file: file, line: line)
        guard let wanted = local ?? peer?.loopback(port: 0) else { preconditionFailure("a socket needs an address or a peer") }
        let address = try Self.reached(by: wanted)
        var peerName: RunLoop.SocketAddress?
        if let peer {
            peerName = try Self.reached(by: peer)
            if peer.kind != wanted.kind { throw .system(operation: "connect \(wanted) to \(peer)", errno: EAFNOSUPPORT) }
        }
        let end = state.withLock { state -> MemoryDatagramEnd? in
            let port = address.port == 0 ? Self.freePort(address, &state) : address.port
            let name = address.withPort(port)
            if port == 0 || state.ends[name] != nil { return nil }
            let end = MemoryDatagramEnd(
                in: self, name, localAddress: wanted.withPort(port), peer: peer, peerName: peerName, limit: options.receiveBufferSize)
            state.ends[name] = end
            return end
        }
        guard let end else { throw .system(operation: "bind \(wanted)", errno: EADDRINUSE) }
        return try DatagramSocket(over: end, on: loop, mode: mode, options: options, label: label, file: file, line: line)
    }

    /// The name under which the network knows an address: the network is one machine, as far as it matters.
    private static func reached(by address: RunLoop.SocketAddress) throws(RunLoop.SourceError) -> RunLoop.SocketAddress {
        guard let address = RunLoop.SocketAddress(try address.native()), address.hasPort else {
            throw .system(operation: "a network in memory with the address \(address)", errno: EAFNOSUPPORT)
        }
        return address.isWildcard ? address.loopback(port: address.port) : address
    }

    /// 0 if all are in use.
    private static func freePort(_ address: RunLoop.SocketAddress, _ state: inout State) -> UInt16 {
        for _ in 49_152...65_535 {
            let port = state.nextPort
            state.nextPort = port == 65_535 ? 49_152 : port + 1
            if state.ends[address.withPort(port)] == nil { return port }
        }
        return 0
    }

    /// The address is free again, unless another socket has it already.
    func remove(_ end: MemoryDatagramEnd) {
        let removed = state.withLock { $0.ends[end.name] === end ? $0.ends.removeValue(forKey: end.name) : nil }
        withExtendedLifetime(removed) {}
    }

    /// 0, or an errno. The sender delivers it later: this is under the lock of its socket.
    func send(_ bytes: [UInt8], from sender: MemoryDatagramEnd, to target: RunLoop.SocketAddress) -> Int32 {
        // What IPv4 allows.
        if bytes.count > 65_507 { return EMSGSIZE }
        guard let target = try? Self.reached(by: target) else { return EINVAL }
        let (receiver, delays) = state.withLock { state -> (MemoryDatagramEnd?, [Duration]) in
            let receiver = state.ends[target].flatMap { $0.accepts(sender.name) ? $0 : nil }
            let weather = state.weather
            if state.random.chance(weather.lossChance) { return (receiver, []) }
            let copies = state.random.chance(weather.duplicateChance) ? 2 : 1
            return (receiver, (0..<copies).map { _ in state.random.duration(in: weather.latency) })
        }
        guard let receiver else {
            if !delays.isEmpty { sender.hearsRefusal() }
            return 0
        }
        let datagram = Datagram(bytes: bytes, peer: sender.name)
        for delay in delays { sender.depart(datagram, to: receiver, after: delay) }
        return 0
    }
}

extension RunLoop.SocketAddress {
    var hasPort: Bool { if case .unix = self { false } else { true } }

    var port: UInt16 {
        switch self {
        case .ipv4(_, let port), .ipv6(_, let port): port
        case .unix: 0
        }
    }

    var isWildcard: Bool {
        switch self {
        case .ipv4(let host, _): host == "0.0.0.0"
        case .ipv6(let host, _): host == "::"
        case .unix: false
        }
    }

    func loopback(port: UInt16) -> Self {
        switch self {
        case .ipv4: .ipv4(host: "127.0.0.1", port: port)
        case .ipv6: .ipv6(host: "::1", port: port)
        case .unix: self
        }
    }
}
