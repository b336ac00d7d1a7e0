// A datagram, and what a socket's owner may choose.

public import EventLoop

/// A datagram that has arrived.
public struct Datagram: Sendable, Hashable {
    /// What it holds. It may be empty.
    public var bytes: [UInt8]
    /// Who sent it. A Unix socket without a name has an empty path.
    public var peer: RunLoop.SocketAddress
    /// It was longer than `maximumSize`, and `bytes` is its beginning.
    public var isTruncated: Bool

    /// A datagram of a program's own, for tests of code that takes one.
    public init(bytes: [UInt8], peer: RunLoop.SocketAddress, isTruncated: Bool = false) {
        (self.bytes, self.peer, self.isTruncated) = (bytes, peer, isTruncated)
    }
}

extension DatagramSocket {
    /// What a socket may use, and how it is made. What the kernel refuses makes the initializer throw.
    public struct Options: Sendable {
        /// Longest datagram that is received whole. Positive.
        public var maximumSize = 2_048
        /// Received and not yet taken by a task; further ones are dropped and counted. Positive.
        public var receiveLimit = 256
        /// Sent and not yet taken by the kernel: `send` beyond it returns false, and `write` waits. Positive.
        public var sendLimit = 256
        /// Bytes of the kernel's buffer (SO_RCVBUF); nil: the system's.
        public var receiveBufferSize: Int?
        /// Bytes of the kernel's buffer (SO_SNDBUF); nil: the system's.
        public var sendBufferSize: Int?
        /// Whether other sockets may be bound to the same port (SO_REUSEPORT), if they ask for it, too. Of one-to-one datagrams the kernel
        /// gives each to one of the sockets, of multicast ones to all.
        public var sharesPort = false
        /// Whether datagrams may be sent to a broadcast address.
        public var allowsBroadcast = false
        /// Whether a socket on `::` hears IPv6 only.
        public var ipv6Only = false
        /// Of multicast that is sent: the interface by name, such as `eth0`; nil: the system's choice.
        public var multicastInterface: String?
        /// Of multicast that is sent: how many networks it crosses. From 0 to 255.
        public var multicastHops = 1
        /// Of multicast that is sent: whether this machine hears it.
        public var multicastLoops = true

        /// The values above.
        public init() {}

        func check(file: StaticString, line: UInt) {
            precondition(maximumSize > 0, "a maximumSize of \(maximumSize) receives nothing; pass 1 or more", file: file, line: line)
            precondition(receiveLimit > 0, "a receiveLimit of \(receiveLimit) receives nothing; pass 1 or more", file: file, line: line)
            precondition(sendLimit > 0, "a sendLimit of \(sendLimit) sends nothing; pass 1 or more", file: file, line: line)
        }
    }

    /// What a socket has done since it was made.
    public struct Statistics: Sendable, Hashable {
        /// Delivered to a handler or a task, or queued for one.
        public var received: UInt64
        /// Taken by the kernel.
        public var sent: UInt64
        /// By the kernel, because its buffer was full (what SO_RXQ_OVFL reports; Linux only), and by `receiveLimit`.
        public var receiveDrops: UInt64
        /// Refused by `send`, and refused by the kernel for good, such as one that is too long (EMSGSIZE).
        public var sendDrops: UInt64
    }
}
