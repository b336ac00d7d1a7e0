// Streams of a test, on loops with threads of their own.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Loops that run as long as `body`. Streams that `body` leaves open are no use afterwards.
func withLoops<R: Sendable>(
    _ count: Int, clock: RunLoop.ManualClock? = nil, _ body: ([RunLoop]) async throws -> R
) async throws -> R {
    let threads = try (0..<count).map { number in
        try RunLoopThread(name: "tls \(number)", setup: { loop in if let clock { loop.use(clock) } })
    }
    let result: Result<R, any Error>
    do { result = .success(try await body(threads.map(\.runLoop))) } catch { result = .failure(error) }
    for thread in threads {
        thread.stop()
        await thread.join()
    }
    return try result.get()
}

/// Two connected descriptors, which become streams, or are closed by the test.
func connectedPair() -> (Int32, Int32) {
    var ends: [Int32] = [-1, -1]
    precondition(socketpair(AF_UNIX, 1, 0, &ends) == 0, "socketpair: errno \(errno)")  // SOCK_STREAM
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    return (ends[0], ends[1])
}

/// A client and a server that TLS connects, on one loop each. They are closed behind `body`.
func withStreams<R: Sendable>(
    _ client: TLSClient, _ server: TLSServer, options: ByteStream.Options = .init(), startsTLS: Bool = true,
    _ body: (_ client: ByteStream, _ server: ByteStream) async throws -> R
) async throws -> R {
    try await withLoops(2) { loops in
        let (one, two) = connectedPair()
        let atClient = try ByteStream(adopting: one, on: loops[0], options: options)
        let atServer = try ByteStream(adopting: two, on: loops[1], options: options)
        defer {
            atClient.close()
            atServer.close()
        }
        if startsTLS {
            async let accepted: Void = atServer.startTLS(server)
            try await atClient.startTLS(client)
            try await accepted
        }
        return try await body(atClient, atServer)
    }
}

/// A Unix socket that listens in a folder of a test.
final class Listener: Sendable {
    let path: String
    private let descriptor: Int32

    init(_ path: String) {
        self.path = path
        descriptor = socket(AF_UNIX, 1, 0)  // SOCK_STREAM
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        precondition(withUnixAddress(path) { bind(descriptor, $0, $1) } == 0 && listen(descriptor, 16) == 0, "listen: errno \(errno)")
    }

    deinit { close(descriptor) }

    func accept(on loop: RunLoop) async throws -> ByteStream {
        var connection: Int32 = -1
        try await suspendUntil("a client connects") {
            connection = systemAccept(descriptor)
            return connection >= 0
        }
        return try ByteStream(adopting: connection, on: loop)
    }
}

private func systemAccept(_ descriptor: Int32) -> Int32 { accept(descriptor, nil, nil) }

/// A connection to a Unix socket, as soon as somebody listens there.
func connection(to path: String, on loop: RunLoop) async throws -> ByteStream {
    let descriptor = socket(AF_UNIX, 1, 0)  // SOCK_STREAM
    _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    do {
        try await suspendUntil("a server listens at \(path)") { withUnixAddress(path) { connect(descriptor, $0, $1) } == 0 }
    } catch {
        close(descriptor)
        throw error
    }
    return try ByteStream(adopting: descriptor, on: loop)
}

extension ByteStream {
    /// Everything until the end.
    func readToEnd() async throws -> [UInt8] {
        var bytes: [UInt8] = []
        while let piece = try await read() { bytes += piece }  // ends: with the stream
        return bytes
    }

    func readText() async throws -> String { String(decoding: try await readToEnd(), as: UTF8.self) }

    /// The error of a call on it, as text.
    func failure(_ body: (ByteStream) async throws -> Void) async -> String {
        do {
            try await body(self)
            return "none"
        } catch {
            return "\(error)"
        }
    }
}

/// A certificate for `localhost` and its issuer's file, and a client and a server that use them.
struct Setup: Sendable {
    let files = Certificates()
    let root: Certificates.Issuer
    let identity: Identity

    init() {
        root = files.makeIssuer("Root")
        identity = files.makeIdentity("server", by: root)
    }

    func client(_ protocols: [String] = [], _ name: String? = "localhost") -> TLSClient {
        TLSClient(serverName: name, trustedCertificates: root.file, applicationProtocols: protocols)
    }

    func server(_ protocols: [String] = [], upTo version: TLSVersion = .tls13) throws -> TLSServer {
        try TLSServer(
            certificateChain: identity.certificate, privateKey: identity.key, applicationProtocols: protocols, maximumVersion: version)
    }
}

/// A file's text.
func text(of path: String) throws -> String {
    let file = try #require(fopen(path, "r"))
    defer { fclose(file) }
    var space = [UInt8](repeating: 0, count: 100_000)
    let count = fread(&space, 1, space.count, file)
    return String(decoding: space.prefix(count), as: UTF8.self)
}
