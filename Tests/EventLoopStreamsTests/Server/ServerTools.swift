// Servers and clients for tests of servers.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Threads with loops, which end with `stop()`.
struct LoopThreads {
    let threads: [RunLoopThread]
    var loops: [RunLoop] { threads.map(\.runLoop) }

    init(_ count: Int) throws { threads = try (0..<count).map { try RunLoopThread(name: "loop \($0)") } }

    func stop() async {
        for thread in threads { thread.stop() }
        for thread in threads { await thread.join() }
    }
}

/// Calls `body` with the loops of new threads, which end afterwards.
@discardableResult
func withLoops<R: Sendable>(
    _ count: Int, isolation: isolated (any Actor)? = #isolation, _ body: ([RunLoop]) async throws -> R
) async throws -> R {
    let threads = try LoopThreads(count)
    do {
        let result = try await body(threads.loops)
        await threads.stop()
        return result
    } catch {
        await threads.stop()
        throw error
    }
}

let anyPort = SocketAddress.ipv4(host: "127.0.0.1", port: 0)

/// Any port of an address that no other test uses, where the system allows that: a port that was just closed there stays free. Clients of
/// other tests get ports of 127.0.0.1.
func anyPort(of test: Int) -> SocketAddress {
    #if os(Linux)
    .ipv4(host: "127.0.1.\(test)", port: 0)
    #else
    anyPort
    #endif
}

/// Writes back every line.
@Sendable func echoLines(_ stream: ByteStream) async {
    do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
}

extension ByteStream {
    /// Sends a line and returns the next one.
    func ask(_ line: String) async throws -> String? {
        try await write(line + "\n")
        var lines = lines().makeAsyncIterator()
        return try await lines.next()
    }

    /// Everything until the end.
    func readAll() async throws -> String {
        var bytes: [UInt8] = []
        while let more = try await read() { bytes += more }  // ends: with the stream
        return String(decoding: bytes, as: UTF8.self)
    }
}

/// Reads a blocking socket to its end. For threads of a test's own: a task shares the threads of the pool with all other tests, and the kernel gives
/// a connection up whose peer reads nothing for a minute or two after the server has closed it. -1 if the connection is reset.
func countAll(_ client: Int32) -> Int {
    var (total, buffer) = (0, [UInt8](repeating: 0, count: 65_536))
    while true {  // ends: with the connection
        let count = read(client, &buffer, buffer.count)
        if count <= 0 { return count == 0 ? total : -1 }
        total += count
    }
}

/// The options of a server whose connections wait as long as tests do.
var patientOptions: ByteStream.Options {
    var options = ByteStream.Options()
    options.writeTimeout = patience
    return options
}

/// EADDRINUSE of `bind`.
func inUse(_ address: SocketAddress) -> RunLoop.SourceError { .system(operation: "bind \(address)", errno: EADDRINUSE) }

/// A connection without a loop. The caller closes it.
func rawClient(_ address: SocketAddress) -> Int32 {
    let client = rawSocket()
    connectRaw(client, address)
    return client
}

func rawSocket() -> Int32 {
    #if canImport(Glibc)
    let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    #else
    let client = socket(AF_INET, SOCK_STREAM, 0)
    #endif
    precondition(client >= 0, "socket: errno \(errno)")
    return client
}

func connectRaw(_ client: Int32, _ address: SocketAddress) {
    guard case .ipv4(let host, let port) = address else { preconditionFailure("only IPv4") }
    var native = sockaddr_in()
    native.sin_family = sa_family_t(AF_INET)
    native.sin_port = port.bigEndian
    inet_pton(AF_INET, host, &native.sin_addr)
    let code = withUnsafePointer(to: &native) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(client, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
    }
    precondition(code == 0, "connect: errno \(errno)")
}

/// A Unix socket that is bound, and does not listen.
func socketFile(_ path: String) -> Int32 {
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    var native = sockaddr_un()
    native.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &native.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
    let code = withUnsafePointer(to: &native) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
    }
    precondition(code == 0, "bind: errno \(errno)")
    return descriptor
}

/// A listener without a socket: a test makes its connections, and sees what the server does with it.
final class ScriptedListener: ServerListener {
    let trace = Trace()
    /// The server's closure for accepted connections.
    let accept = Box<(@Sendable (IncomingConnection) -> Void)?>(nil)
    /// Called when the listener has joined a loop.
    let onJoin = Box<(@Sendable (RunLoop) -> Void)?>(nil)
    private let accepts = Box(true)
    private let closed = Box<[@Sendable () -> Void]>([])

    var localAddress: RunLoop.SocketAddress? { .unix(path: "scripted") }
    var isAccepting: Bool {
        get { accepts.value }
        set { accepts.value = newValue }
    }

    func join(_ loop: RunLoop, _ mode: RunLoop.Mode) {
        trace.add("join")
        onJoin.value?(loop)
    }

    func refuseConnections() { trace.add("refuse") }

    func acceptQueue(limit: Int, _ accept: (IncomingConnection) -> Void) -> Bool {
        trace.add("accept")
        return true
    }

    func endListening() {
        trace.add("end")
        let bodies = closed.value
        closed.value = []
        for body in bodies { body() }
    }

    func onClosed(_ body: @escaping @Sendable () -> Void) { closed.change { $0.append(body) } }
}

/// A connection that its client has reset: no stream can be made of it.
final class ResetConnection: StreamTransport {
    func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError) { throw .system(operation: "test", errno: ECONNRESET) }

    func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult { .wouldBlock }
    func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult { .wouldBlock }
    func finishWriting() {}
    func didFinishWriting() {}
    func setInterest(read: Bool, write: Bool) {}
    func close() {}
    let losesBytesOnClose = false
    let isWriteOnly = false
    let localAddress: RunLoop.SocketAddress? = nil
    let peerAddress: RunLoop.SocketAddress? = nil
}
