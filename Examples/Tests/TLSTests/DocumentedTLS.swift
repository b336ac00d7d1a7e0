// The code of docs/tls.md, compiled. The other tests run the same calls.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

func connectSecurely(to host: String, on loop: RunLoop) async throws -> ByteStream {
    let stream = try await ByteStream.connect(host: host, port: 443, on: loop)
    try await stream.startTLS(TLSClient(serverName: host))
    return stream
}

func startSecureServer(on loops: [RunLoop]) throws -> StreamServer {
    let tls = try TLSServer(certificateChain: "chain.pem", privateKey: "key.pem", applicationProtocols: ["http/1.1"])
    return try StreamServer(listeningOn: .ipv4(host: "0.0.0.0", port: 8443), on: loops) { stream in
        guard (try? await stream.startTLS(tls)) != nil else { return }
        try? await stream.write("hello\n")
    }
}

/// False if the server has no TLS.
func upgrade(_ stream: ByteStream, to host: String) async throws -> Bool {
    try await stream.write("STARTTLS\r\n")
    guard try await stream.readLine(limit: 1_000)?.hasPrefix("220 ") == true else { return false }
    try await stream.startTLS(TLSClient(serverName: host))
    return true
}

final class ReloadedCertificates: Sendable {
    private let current: Mutex<TLSServer>

    init() throws { current = Mutex(try Self.read()) }

    private static func read() throws -> TLSServer {
        try TLSServer(certificateChain: "chain.pem", privateKey: "key.pem", applicationProtocols: ["http/1.1"])
    }

    var server: TLSServer { current.withLock { $0 } }

    /// Files that cannot be used change nothing.
    func reload() {
        do {
            let new = try Self.read()
            current.withLock { $0 = new }
        } catch {
            print("the old certificate stays: \(error)")
        }
    }
}

func startReloadingServer(on loop: RunLoop) throws -> StreamServer {
    let certificates = try ReloadedCertificates()
    let hangUp = try RunLoop.SignalSource(signal: SIGHUP) { _, _ in certificates.reload() }
    loop.add(hangUp, forMode: .common)
    return try StreamServer(listeningOn: .ipv4(host: "0.0.0.0", port: 8443), on: [loop]) { stream in
        guard (try? await stream.startTLS(certificates.server)) != nil else { return }
        try? await stream.write("hello\n")
    }
}
