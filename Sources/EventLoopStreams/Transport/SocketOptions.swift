// The options of a socket under a stream, and how they are set on its descriptor.

internal import CStreams
public import EventLoop
internal import EventLoopLibC

extension ByteStream {
    /// What is set on the socket before the first byte. On Unix sockets `noDelay` and `keepAlive` are ignored, and `unacknowledgedTimeout` throws
    /// `.system` (EOPNOTSUPP). So does everything but the defaults on what is no socket. A value that the kernel refuses throws `.system` with
    /// the operation `setsockopt(…)`.
    public struct SocketOptions: Sendable, Hashable {
        /// TCP_NODELAY: small messages are sent at once.
        public var noDelay = true
        /// Asks a silent peer whether it is still there.
        public var keepAlive: KeepAlive?
        /// SO_SNDBUF, in bytes; Linux doubles it. What a slow peer can hold in the kernel counts beside `highWater`.
        public var sendBufferSize: Int?
        /// SO_RCVBUF, in bytes; Linux doubles it.
        public var receiveBufferSize: Int?
        /// TCP_USER_TIMEOUT: the connection fails when sent bytes stay unacknowledged for so long. In milliseconds, rounded up.
        public var unacknowledgedTimeout: Duration?
        /// Where `connect` connects from. Addresses of another family are not tried. Streams of a server, and adopted ones, ignore it.
        public var localAddress: RunLoop.SocketAddress?
        /// The defaults.
        public init() {}
    }

    /// SO_KEEPALIVE with its times, in whole seconds, rounded up. The connection fails when the peer has answered none of `count` questions.
    public struct KeepAlive: Sendable, Hashable {
        /// The silence before the first question.
        public var idle: Duration
        /// Between two questions.
        public var interval: Duration
        /// So many questions.
        public var count: Int
        /// After a minute of silence the peer is asked, and two minutes after its last byte a dead one is noticed.
        public init(idle: Duration = .seconds(60), interval: Duration = .seconds(10), count: Int = 6) {
            (self.idle, self.interval, self.count) = (idle, interval, count)
        }
    }
}

extension ByteStream.SocketOptions {
    /// The kernel's 32 bits of whole units, at least one, rounded up.
    private static func whole(_ duration: Duration, _ unit: Duration) -> Int32 {
        if duration <= .zero { return -1 }  // the kernel refuses it
        let count = (duration / unit).rounded(.up)
        return count >= Double(Int32.max) ? .max : Int32(count)
    }

    private static func refuse(_ operation: String, _ descriptor: Int32, _ errno: Int32) -> RunLoop.SourceError {
        .system(operation: "\(operation) of descriptor \(descriptor)", errno: errno)
    }

    private static func set(
        _ descriptor: Int32, _ option: cstreams_option, _ name: String, _ value: Int32
    ) throws(RunLoop.SourceError) {
        let code = value < 0 ? EINVAL : cstreams_set_option(descriptor, option, value)
        if code != 0 { throw refuse("setsockopt(\(name))", descriptor, code) }
    }

    /// Before the connection is made, because they decide about its window.
    func setBuffers(of descriptor: Int32) throws(RunLoop.SourceError) {
        if let size = sendBufferSize { try Self.set(descriptor, CSTREAMS_SEND_BUFFER, "SO_SNDBUF", Self.size(size)) }
        if let size = receiveBufferSize { try Self.set(descriptor, CSTREAMS_RECEIVE_BUFFER, "SO_RCVBUF", Self.size(size)) }
    }

    private static func size(_ size: Int) -> Int32 { size <= 0 ? -1 : Int32(clamping: size) }

    /// Sets all but `localAddress` on a connected socket.
    func set(on descriptor: Int32, isInternet: Bool) throws(RunLoop.SourceError) {
        try setBuffers(of: descriptor)
        if !isInternet {
            if unacknowledgedTimeout != nil { throw Self.refuse("setsockopt(TCP_USER_TIMEOUT)", descriptor, EOPNOTSUPP) }
            return
        }
        if noDelay { _ = cstreams_set_option(descriptor, CSTREAMS_NO_DELAY, 1) }
        if let time = unacknowledgedTimeout {
            try Self.set(descriptor, CSTREAMS_UNACKNOWLEDGED, "TCP_USER_TIMEOUT", Self.whole(time, .milliseconds(1)))
        }
        guard let keepAlive else { return }
        try Self.set(descriptor, CSTREAMS_KEEP_IDLE, "TCP_KEEPIDLE", Self.whole(keepAlive.idle, .seconds(1)))
        try Self.set(descriptor, CSTREAMS_KEEP_INTERVAL, "TCP_KEEPINTVL", Self.whole(keepAlive.interval, .seconds(1)))
        try Self.set(descriptor, CSTREAMS_KEEP_COUNT, "TCP_KEEPCNT", Self.size(keepAlive.count))
        try Self.set(descriptor, CSTREAMS_KEEP_ALIVE, "SO_KEEPALIVE", 1)
    }

    /// `set` for the defaults.
    static func setDefaults(on descriptor: Int32, isInternet: Bool) {
        if isInternet { _ = cstreams_set_option(descriptor, CSTREAMS_NO_DELAY, 1) }
    }

    /// What is no socket has no options.
    func refuseUnlessDefault(_ what: String) throws(RunLoop.SourceError) {
        if self != Self() { throw .system(operation: "setting socket options of \(what)", errno: EOPNOTSUPP) }
    }
}
