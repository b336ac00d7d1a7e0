// W14.idle-tls: the heap memory of an idle TLS 1.3 connection of a server after its handshake and one echo, against OpenSSL without a stream.
// Both ask OpenSSL to release its buffers when they are empty (SSL_MODE_RELEASE_BUFFERS). The clients are OpenSSL's in both cases, and are freed
// before the figure is read.
//
// Built with the trait TLS only: swift run -c release --traits TLS eventloop-perf --only W14.idle-tls --ops 2000 --count-allocations

#if TLS

import COpenSSL
import CPerfPeers
import EventLoop
import EventLoopStreams
import EventLoopTLS
import Glibc

enum W14IdleTLS {
    static var cases: [Case] {
        [
            Case(
                "W14.idle-tls", "heap of an idle TLS connection with handlers", metric: .heapBytes, amount: .fixed(full: 2_000, quick: 500),
                goals: [Goal("openssl", ratio: 1.1)],
                contenders: [Contender("eventloop", measure: holdStreams), Contender("openssl", measure: holdPlain)])
        ]
    }

    private static func holdStreams(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            let loop = RunLoop.current
            let identity = Identity()
            let server = try! TLSServer(certificateChain: identity.certificate, privateKey: identity.key)  // they have just been made
            let clientContext = OpenSSLContext(isServer: false, identity)
            var clients: [OpenSSLConnection] = []
            clients.reserveCapacity(count)
            identity.remove()
            meter.begin()
            for _ in 0..<count {
                let (ours, client) = connect(clientContext)
                clients.append(client)
                // The descriptor is connected, and the loop has not ended.
                let stream = try! ByteStream(adopting: ours, on: loop)
                let isReady = Flag()
                Task(executorPreference: loop) {
                    do { try await stream.startTLS(server) } catch { preconditionFailure("the handshake failed: \(error)") }
                    stream.onReceive { stream, bytes in
                        bytes.withUnsafeBytes { _ = stream.send($0) }
                        bytes.consume(bytes.count)
                    }
                    isReady.value = true
                }
                while true {  // ends: both sides go on
                    let isConnected = client.doHandshake()
                    _ = loop.run(until: .distantPast)
                    if isConnected && isReady.value { break }
                }
                client.write()
                while !client.read() { _ = loop.run(until: .distantPast) }  // ends: the server answers
            }
            for client in clients { client.free() }
            clients = []
            meter.end()
            // The clients are gone: this ends the streams.
            for _ in 0..<8 { _ = loop.run(until: .distantPast) }
        }
    }

    private static func holdPlain(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            let identity = Identity()
            let (serverContext, clientContext) = (OpenSSLContext(isServer: true, identity), OpenSSLContext(isServer: false, identity))
            var (servers, clients): ([OpenSSLConnection], [OpenSSLConnection]) = ([], [])
            identity.remove()
            servers.reserveCapacity(count)
            clients.reserveCapacity(count)
            meter.begin()
            for _ in 0..<count {
                let (ours, client) = connect(clientContext)
                let server = OpenSSLConnection(serverContext, ours)
                servers.append(server)
                clients.append(client)
                while true {  // ends: both sides go on
                    let isConnected = client.doHandshake()
                    if server.doHandshake() && isConnected { break }
                }
                client.write()
                while !server.read() {}  // ends: the client has written
                server.write()
                while !client.read() {}  // ends: the server has written
            }
            for client in clients { client.free() }
            clients = []
            meter.end()
            for server in servers { server.free() }
        }
    }

    /// A socket pair: the descriptor of the server, and a client on the other.
    private static func connect(_ context: OpenSSLContext) -> (Int32, OpenSSLConnection) {
        var ends: [Int32] = [0, 0]
        perf_pair_make(&ends)
        return (ends[0], OpenSSLConnection(context, ends[1]))
    }
}

/// Written and read on one thread.
private final class Flag: @unchecked Sendable {
    // SAFETY: the loop's thread only.
    var value = false
}

/// The files of a certificate that is valid for a day.
private struct Identity {
    private let folder: String
    let certificate: String
    let key: String

    init() {
        var template = Array("/tmp/eventloop-perf-XXXXXX".utf8CString)
        precondition(mkdtemp(&template) != nil, "no folder could be made in /tmp")
        folder = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        (certificate, key) = (folder + "/certificate.pem", folder + "/key.pem")
        let code = system(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost -out '\(certificate)' "
                + "-keyout '\(key)' 2>/dev/null")
        precondition(code == 0, "openssl could not make a certificate; install it")
    }

    /// Both sides have read the files.
    func remove() {
        unlink(certificate)
        unlink(key)
        rmdir(folder)
    }
}

/// The settings of EventLoopTLS, on OpenSSL alone. Lives as long as the process.
private struct OpenSSLContext {
    let context: OpaquePointer

    init(isServer: Bool, _ identity: Identity) {
        context = SSL_CTX_new(isServer ? TLS_server_method() : TLS_client_method())
        precondition(copenssl_prepare(context, TLS1_3_VERSION, TLS1_3_VERSION) == 1, "OpenSSL refused TLS 1.3")
        if !isServer { return }
        precondition(
            SSL_CTX_use_certificate_chain_file(context, identity.certificate) == 1
                && SSL_CTX_use_PrivateKey_file(context, identity.key, SSL_FILETYPE_PEM) == 1, "OpenSSL refused the certificate")
    }
}

/// One end of a connection, without a stream.
private struct OpenSSLConnection {
    private let connection: OpaquePointer
    private let descriptor: Int32

    init(_ context: OpenSSLContext, _ descriptor: Int32) {
        (connection, self.descriptor) = (SSL_new(context.context), descriptor)
        SSL_set_fd(connection, descriptor)
        if SSL_is_server(connection) == 1 { SSL_set_accept_state(connection) } else { SSL_set_connect_state(connection) }
    }

    /// True when it is over.
    func doHandshake() -> Bool { SSL_do_handshake(connection) == 1 }

    func write() {
        var byte: UInt8 = 7
        precondition(SSL_write(connection, &byte, 1) == 1, "a socket pair takes a byte")
    }

    /// False if nothing has come.
    func read() -> Bool {
        var byte: UInt8 = 0
        return SSL_read(connection, &byte, 1) == 1
    }

    func free() {
        SSL_free(connection)
        close(descriptor)
    }
}

#endif
