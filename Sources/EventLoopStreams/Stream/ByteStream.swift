// A buffered stream of bytes.

public import EventLoop

/// A buffered stream of bytes over a connected socket, a pipe or a terminal. It lives on one loop, in modes, like a source.
///
/// Two ways to use one, never both on the same stream: handlers, which are called on the loop's thread, or `async` calls from any task.
///
/// Thread-safe. Bytes move while the loop runs in one of the stream's modes, and when a call writes them; while other modes run, received bytes
/// wait in the kernel. An open stream keeps its modes from being empty. With a handler it lives until its end; otherwise it lives as long as
/// somebody refers to it, and the last release does `closeAfterWriting()`. SIGPIPE is never raised. See `CFStream`, and NSStream in the Guide.
public final class ByteStream: Sendable {
    let core: StreamCore

    /// Takes over a connected descriptor: close-on-exec from now on, and closed by the stream, also when this throws. A TCP socket gets
    /// TCP_NODELAY.
    ///
    /// The flag O_NONBLOCK of the open file, which other processes may share, stays as it is: sockets are used with calls that need no flag, and a
    /// pipe or a terminal is opened again under its number (on Linux). Other devices become non-blocking until the stream closes them.
    ///
    /// Any thread. Throws `.badDescriptor` if the descriptor is not open, `.notPollable` for a file that the kernel cannot watch, `.system` with
    /// the operation `getpeername` and ENOTCONN for a socket that is not connected or listens, with EPROTOTYPE for one that is no stream
    /// socket; `.loopEnded` when the loop has ended. Limits that contradict each other are a precondition failure: see `Options`.
    public init(
        adopting descriptor: Int32, on loop: RunLoop, mode: RunLoop.Mode = .common, options: Options = Options(), label: String? = nil,
        file: StaticString = #fileID, line: UInt = #line
    ) throws(RunLoop.SourceError) {
        options.check()
        core = StreamCore(try DescriptorSide(adopting: descriptor, options.changedSocket), on: loop, mode, options)
        try core.open(label: label, file: file, line: line)
    }

    /// Takes over one descriptor to read from and another to write to, as of a child process or standard input and output.
    ///
    /// As `init(adopting:)`; both are closed, also when this throws. Either may be a regular file: it is always ready.
    public convenience init(
        reading: Int32, writing: Int32, on loop: RunLoop, mode: RunLoop.Mode = .common, options: Options = Options(), label: String? = nil,
        file: StaticString = #fileID, line: UInt = #line
    ) throws(RunLoop.SourceError) {
        options.check()
        try self.init(
            over: DescriptorPair(reading: reading, writing: writing, options.changedSocket), on: loop, mode: mode, options: options,
            label: label, file: file,
            line: line)
    }

    /// A stream over any transport. Throws `.loopEnded` if the loop has ended.
    package init(
        over transport: any StreamTransport, on loop: RunLoop, mode: RunLoop.Mode = .common, options: Options = Options(),
        label: String? = nil, file: StaticString = #fileID, line: UInt = #line
    ) throws(RunLoop.SourceError) {
        options.check()
        if transport.descriptorSide == nil { try options.changedSocket?.refuseUnlessDefault("a stream in memory") }
        core = StreamCore(transport, on: loop, mode, options)
        try core.open(label: label, file: file, line: line)
    }

    // A stream with handlers lives until its end.
    deinit { closeAfterWriting() }

    /// Asked by whatever ends a stream or sends, before it takes a lock.
    var isOurs: Bool { core.loop.isOurs }

    // MARK: What it is

    /// The loop that serves the stream.
    public var loop: RunLoop { core.loop }

    /// False once the stream has an `end`. After `.endOfStream` tasks may still write.
    public var isOpen: Bool { end == nil }

    /// Nil while it is open. It is set once.
    public var end: End? { core.withLock { core.locked.end } }

    /// The socket's own address; nil for other files.
    public var localAddress: RunLoop.SocketAddress? { core.transport.localAddress }

    /// The peer's address; nil for other files than sockets.
    public var peerAddress: RunLoop.SocketAddress? { core.transport.peerAddress }

    /// Since the stream was made, as they came from the kernel: with TLS, encrypted.
    public var bytesReceived: UInt64 { core.withLock { core.locked.receiving.total } }

    /// Since the stream was made, as the kernel took them: with TLS, encrypted.
    public var bytesSent: UInt64 { core.withLock { core.locked.sending.total } }

    /// When the kernel took bytes last that had waited; nil if there is no write timeout, or none have.
    package var lastTaken: RunLoop.Instant? { core.withLock { core.lastTakenLocked } }

    /// Written and not yet sent. What tasks wait to write is not counted.
    public var bytesWaiting: Int { core.withLock { core.locked.sending.waiting } }

    // MARK: Ending

    /// Ends the stream at once with `.closed`; what waits is dropped, in both directions. What waits only because a handler has not returned, or the
    /// pass has not ended, is sent before, as far as the kernel takes it. Nothing if it has ended. Any thread.
    ///
    /// On the loop's thread, outside a handler of the stream, `onEnd` is called before this returns.
    public func close() { /* DOES CALLOUT */ if isOurs { core.closeNow() } }

    /// Ends the stream with `.closed` when everything written has been sent, including what tasks wait to write. Later writes are refused. Any
    /// thread.
    ///
    /// After the last byte it signals the end to the peer, and the end is reported. If the descriptor is a socket, it stays open until
    /// the peer has closed its side, too, but not longer than 5 seconds of the loop's time or one mebibyte: what the peer sends is dropped.
    /// Closing a socket with unread bytes would reset the connection and could destroy what is on its way to the peer.
    public func closeAfterWriting() { /* DOES CALLOUT */ if isOurs { core.closeAfterWriting() } }

    /// The same, with another `writeTimeout` from now on.
    package func closeAfterWriting(writeTimeout: Duration) { /* DOES CALLOUT */ core.closeAfterWriting(writeTimeout: writeTimeout) }

    // MARK: Layers

    /// Sends and receives through `layer` from now on: bytes that were written before are sent as they are, and bytes that were received and
    /// not taken go to the layer. Returns after its handshake. Throws what the handshake failed with, and then the stream has ended: with
    /// `.timedOut`, if the handshake took longer than `timeout`.
    ///
    /// Throws EBUSY if a task reads the stream, and ends it; throws EALREADY if there is a layer, and leaves the stream as it is. While a handler
    /// has the input, waits until it returns. Calls that begin during the handshake wait for its end.
    package func install(
        _ layer: any StreamLayer, timeout: Duration? = nil, isolation: isolated (any Actor)? = #isolation
    ) async throws {
        guard isOurs else { throw RunLoopEnded() }
        try await core.install(layer, timeout: timeout, isolation: isolation)
    }

    /// The name that the stream was connected to; nil if there was none.
    package var connectedHost: String? {
        get { core.withLock { core.connectedHost } }
        set { core.withLock { core.connectedHost = newValue } }
    }

    /// Whether the stream has read bytes of the peer that nobody has consumed: for the program, or for its layer, also if the layer can make
    /// nothing of them before more has come. False for those that a handler has while it is called.
    package var hasUnconsumedInput: Bool {
        core.withLock { !core.locked.receiving.input.isEmpty || core.layer?.hasUnreadInput ?? false }
    }

    /// Kept after the end.
    package var layer: (any StreamLayer)? { core.withLock { core.layer } }
}

/// Streams are equal if they are the same object.
extension ByteStream: Hashable {
    public static func == (first: ByteStream, second: ByteStream) -> Bool { first === second }
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
