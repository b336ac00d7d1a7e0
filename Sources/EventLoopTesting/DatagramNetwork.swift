// A network of datagram sockets in memory.

public import EventLoop
public import EventLoopDatagrams

/// Datagram sockets that reach each other in memory, for tests of code that uses them.
///
/// ```
/// let network = DatagramNetwork(seed: seed)
/// network.lossChance = 0.2
/// let server = try network.socket(boundTo: .ipv4(host: "127.0.0.1", port: 53), on: .ofTest)
/// let client = try network.socket(connectedTo: server.localAddress, on: .ofTest)
/// ```
///
/// No descriptor is used, so the same test always does the same in manual time, if all sockets are on one loop. The network has IPv4 and IPv6
/// addresses, which it keeps apart, and no others. They are free until a socket of this network has them; `0.0.0.0` and `::` are the loopback
/// address. A datagram to an address that no socket has is lost, and a connected socket hears of it (ECONNREFUSED). A socket has room for
/// `receiveBufferSize`, as in the kernel, and drops and counts what exceeds it; sending always has room. There are no groups (`join` throws
/// EOPNOTSUPP) and no shared ports, and `withDescriptor` returns nil.
///
/// Thread-safe.
public final class DatagramNetwork: Sendable {
    private let memory: MemoryDatagramNetwork

    /// A network without sockets. `seed` decides what is lost and when it arrives.
    public init(seed: UInt64 = 0) { memory = MemoryDatagramNetwork(seed: seed) }

    /// How long a datagram that is sent from now on is on its way, on the clock of the receiver's loop; zero at the beginning. Drawn for each, so
    /// that they may overtake each other. Negative ones are a precondition failure.
    public var latency: ClosedRange<Duration> {
        get { memory.weather.latency }
        set {
            precondition(newValue.lowerBound >= .zero, "a datagram cannot arrive before it was sent; a latency is zero or more")
            memory.changeWeather { $0.latency = newValue }
        }
    }

    /// The chance that a datagram that is sent from now on is lost, between 0 and 1 (a precondition); 0 at the beginning.
    public var lossChance: Double {
        get { memory.weather.lossChance }
        set {
            precondition(newValue >= 0 && newValue <= 1, "a lossChance is between 0 and 1, not \(newValue)")
            memory.changeWeather { $0.lossChance = newValue }
        }
    }

    /// The chance that a datagram that is sent from now on arrives twice, between 0 and 1 (a precondition); 0 at the beginning.
    public var duplicateChance: Double {
        get { memory.weather.duplicateChance }
        set {
            precondition(newValue >= 0 && newValue <= 1, "a duplicateChance is between 0 and 1, not \(newValue)")
            memory.changeWeather { $0.duplicateChance = newValue }
        }
    }

    /// Makes a socket of this network, as `DatagramSocket(boundTo:)` makes one of the kernel.
    public func socket(
        boundTo address: RunLoop.SocketAddress, on loop: RunLoop, mode: RunLoop.Mode = .common,
        options: DatagramSocket.Options = DatagramSocket.Options(), label: String? = nil, file: StaticString = #fileID, line: UInt = #line
    ) throws(RunLoop.SourceError) -> DatagramSocket {
        try memory.socket(from: address, to: nil, on: loop, mode: mode, options: options, label: label, file: file, line: line)
    }

    /// Makes a socket of this network with one peer, as `DatagramSocket(connectedTo:)` makes one of the kernel.
    public func socket(
        connectedTo peer: RunLoop.SocketAddress, from local: RunLoop.SocketAddress? = nil, on loop: RunLoop, mode: RunLoop.Mode = .common,
        options: DatagramSocket.Options = DatagramSocket.Options(), label: String? = nil, file: StaticString = #fileID, line: UInt = #line
    ) throws(RunLoop.SourceError) -> DatagramSocket {
        try memory.socket(from: local, to: peer, on: loop, mode: mode, options: options, label: label, file: file, line: line)
    }
}
