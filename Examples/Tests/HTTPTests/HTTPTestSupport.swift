// A server on loops of its own, and a client that sends what a test writes, byte by byte if it wants.

import EventLoop
import EventLoopHTTP
import HTTPTypes
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Not the one of TestSupport.
typealias HTTPServer = EventLoopHTTP.HTTPServer
typealias Request = HTTPServer.Request
typealias Response = HTTPServer.Response

/// Runs `body` on a thread of its own while a server runs. Afterwards the server must end without a grace period.
func withServer(
    options: HTTPServer.Options = .init(), loops count: Int = 1, address: RunLoop.SocketAddress = .ipv4(host: "127.0.0.1", port: 0),
    clock: RunLoop.ManualClock? = nil, respond: @escaping @Sendable (Request) async throws -> Response,
    _ body: @escaping @Sendable (HTTPServer) throws -> Void
) async throws {
    let threads = (0..<count).map { _ in RunningLoop { loop in if let clock { loop.use(clock) } } }
    let server = try HTTPServer(listeningOn: address, on: threads.map(\.loop), options: options, respond: respond)
    let result = await Task { try await elsewhere { try body(server) } }.result
    await server.shutdown(grace: .zero)
    #expect(server.connections == 0)
    for thread in threads { try thread.end() }
    try result.get()
}

/// An answer, as it came.
struct Answer: Equatable {
    var status: Int
    var reason: String
    /// Names in lower case, in their order.
    var fields: [(name: String, value: String)]
    var body: [UInt8]
    var isChunked: Bool { self["transfer-encoding"] == "chunked" }

    var text: String { String(decoding: body, as: UTF8.self) }
    subscript(name: String) -> String? { fields.first { $0.name == name }?.value }

    static func == (one: Answer, other: Answer) -> Bool { one.status == other.status && one.body == other.body }
}

struct ClientError: Error, CustomStringConvertible {
    let description: String
}

/// A connection that blocks. Every wait has a bound.
final class Client {
    let descriptor: Int32
    private var received: [UInt8] = []
    private var hasEnded = false

    convenience init(_ server: HTTPServer, receiveBuffer: Int32? = nil) throws {
        try self.init(to: server.localAddress, receiveBuffer: receiveBuffer)
    }

    init(to address: RunLoop.SocketAddress, receiveBuffer: Int32? = nil) throws {
        switch address {
        case .ipv4(_, let port):
            descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            if var size = receiveBuffer { setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, 4) }
            var on: Int32 = 1
            setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, 4)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = port.bigEndian
            address.sin_addr.s_addr = in_addr_t(0x7F00_0001).bigEndian
            let code = withUnsafeBytes(of: &address) { [descriptor] in
                connect(descriptor, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
            }
            guard code == 0 else { throw ClientError(description: "connect: errno \(errno)") }
        case .unix(let path):
            descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
            let code = withUnsafeBytes(of: &address) { [descriptor] in
                connect(descriptor, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
            }
            guard code == 0 else { throw ClientError(description: "connect: errno \(errno)") }
        default: throw ClientError(description: "no address for tests")
        }
    }

    private var isOpen = true

    deinit { close() }

    func close() {
        if isOpen { _ = SystemCalls.close(descriptor) }
        isOpen = false
    }

    func finishSending() { shutdown(descriptor, Int32(SHUT_WR)) }

    /// Closes so that the kernel sends a reset.
    func reset() {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
        close()
    }

    func send(_ text: String) throws { try send(Array(text.utf8)) }

    func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {  // ends: each turn sends something or throws
            let count = bytes[sent...].withUnsafeBytes { SystemCalls.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { throw ClientError(description: "send: errno \(errno)") }
            sent += count
        }
    }

    /// Sends what the server still takes: it may close meanwhile.
    func trySend(_ bytes: [UInt8]) { try? send(bytes) }

    /// Reads once; false at the end.
    @discardableResult
    func receive(_ location: SourceLocation = #_sourceLocation) throws -> Bool {
        if hasEnded { return false }
        try waitUntilReadable(descriptor, "the server sends something", location)
        var piece = [UInt8](repeating: 0, count: 65_536)
        let count = recv(descriptor, &piece, piece.count, 0)
        if count < 0 { throw ClientError(description: "recv: errno \(errno)") }
        hasEnded = count == 0
        received.append(contentsOf: piece[..<count])
        return !hasEnded
    }

    /// Reads `count` bytes, and perhaps a few more; less at the end.
    func receive(atLeast count: Int, _ location: SourceLocation = #_sourceLocation) throws {
        let enough = received.count + count
        while received.count < enough, try receive(location) {}  // ends: with the bytes, or with the connection
    }

    /// Everything up to the end of the connection. A reset ends it, too, behind what came before.
    func rest(_ location: SourceLocation = #_sourceLocation) throws -> [UInt8] {
        do { while try receive(location) {} } catch let error as ClientError where error.description.hasSuffix("errno \(ECONNRESET)") {}
        defer { received = [] }
        return received
    }

    /// The next answer.
    func answer(isHead: Bool = false, _ location: SourceLocation = #_sourceLocation) throws -> Answer {
        var head = try line(location).split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false).map(String.init)
        guard head.count == 3, head[0] == "HTTP/1.1", let status = Int(head[1]) else {
            throw ClientError(description: "no status line: \(head)")
        }
        var fields: [(name: String, value: String)] = []
        while true {  // ends: with the head
            let line = try line(location)
            if line.isEmpty { break }
            guard let colon = line.firstIndex(of: ":") else { throw ClientError(description: "no field: \(line)") }
            let value = line[line.index(after: colon)...].drop { $0 == " " }
            fields.append((line[..<colon].lowercased(), String(value)))
        }
        head[1] = ""
        var answer = Answer(status: status, reason: head[2], fields: fields, body: [])
        if isHead || status == 204 || status == 304 || status < 200 { return answer }
        if answer.isChunked {
            while true {  // ends: with the last chunk
                guard let size = Int(try line(location), radix: 16) else { throw ClientError(description: "no size of a chunk") }
                answer.body += try take(size, location)
                guard try line(location).isEmpty else { throw ClientError(description: "no end of a chunk") }
                if size == 0 { break }
            }
        } else if let length = answer["content-length"] {
            answer.body = try take(Int(length)!, location)
        } else {
            answer.body = try rest(location)
        }
        return answer
    }

    /// Sends a request, and reads its answer.
    func ask(_ text: String, isHead: Bool = false, _ location: SourceLocation = #_sourceLocation) throws -> Answer {
        try send(text)
        return try answer(isHead: isHead, location)
    }

    private func take(_ count: Int, _ location: SourceLocation) throws -> [UInt8] {
        while received.count < count {  // ends: with the bytes, or with the connection
            guard try receive(location) else { throw ClientError(description: "the connection ended in the middle of an answer") }
        }
        defer { received.removeFirst(count) }
        return Array(received[..<count])
    }

    func line(_ location: SourceLocation = #_sourceLocation) throws -> String {
        while true {  // ends: with a line, or with the connection
            if let end = received.firstIndex(of: 10) {
                guard end > 0, received[end - 1] == 13 else { throw ClientError(description: "a line without CR") }
                defer { received.removeFirst(end + 1) }
                return String(decoding: received[..<(end - 1)], as: UTF8.self)
            }
            guard try receive(location) else { throw ClientError(description: "the connection ended in the middle of a line") }
        }
    }

    /// Whether the server has closed the connection, and sent nothing else.
    func isClosed(_ location: SourceLocation = #_sourceLocation) throws -> Bool { try rest(location).isEmpty }
}

/// Functions whose names members of `Client` have.
private enum SystemCalls {
    #if canImport(Glibc)
    static func close(_ descriptor: Int32) -> Int32 { Glibc.close(descriptor) }
    static func send(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int, _ flags: Int32) -> Int {
        Glibc.send(descriptor, bytes, count, flags)
    }
    #else
    static func close(_ descriptor: Int32) -> Int32 { Darwin.close(descriptor) }
    static func send(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int, _ flags: Int32) -> Int {
        Darwin.send(descriptor, bytes, count, flags)
    }
    #endif
}

/// What servers of this process have warned of. The handler is the process's, so tests look for their own.
enum HeardWarnings {
    private static let all: Locked<[RunLoop.Warning]> = {
        let all = Locked<[RunLoop.Warning]>([])
        RunLoop.setWarningHandler { warning in all.withLock { $0.append(warning) } }
        return all
    }()

    static func begin() { _ = all }
    static func messages(about path: String) -> [RunLoop.Warning] { all.withLock { $0.filter { $0.message.contains(path) } } }
}

/// Calls `body` with the path of a folder, and removes it.
func withFolder(_ body: (String) async throws -> Void) async rethrows {
    let path = makeTemporaryDirectory()
    defer { removeFlatDirectory(path) }
    try await body(path)
}

/// A file of zeros.
func makeFile(_ path: String, size: Int) {
    let descriptor = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)
    precondition(ftruncate(descriptor, off_t(size)) == 0, "ftruncate: errno \(errno)")
    close(descriptor)
}

func get(_ target: String = "/", _ fields: String = "") -> String { "GET \(target) HTTP/1.1\r\nHost: test\r\n\(fields)\r\n" }
