// The module CLibeventOpenSSL, which the package trait "OpenSSL" adds (docs/c-libraries.md).

import CLibevent
import CLibeventOpenSSL
import EventLoop
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct TLSPairTests {
    @Test(arguments: [RunLoop.Mode.default, "tls"])
    func `two bufferevents exchange messages over TLS on a run loop`(mode: RunLoop.Mode) throws {
        let outcome = try onFreshThread { loop in
            let pair = try TLSPair(loop, mode)
            defer { pair.free() }
            pair.client.send("question")
            let result = loop.run(mode: mode, for: patience)
            return "\(result): \(pair.server.received), \(pair.client.received), \(pair.version)"
        }
        #expect(outcome == "stopped: question, answer to question, TLSv1.2")
    }
}

/// A client and a server at the ends of a socket pair. For the thread of their loop.
private final class TLSPair {
    let client: End
    let server: End
    private let context: OpaquePointer

    init(_ loop: RunLoop, _ mode: RunLoop.Mode) throws {
        context = try #require(SSL_CTX_new(TLS_method()))
        // Without certificates, which TLS 1.2 can do: the test is about events.
        SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(TLS1_2_VERSION), nil)
        try #require(SSL_CTX_set_cipher_list(context, "AECDH:@SECLEVEL=0") == 1)
        var sockets: [Int32] = [-1, -1]
        #if canImport(Glibc)
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        #else
        let type = SOCK_STREAM
        #endif
        try #require(socketpair(AF_UNIX, type, 0, &sockets) == 0)
        for socket in sockets { evutil_make_socket_nonblocking(socket) }
        let context = context
        (client, server) = try loop.withEventBase(forMode: mode) { base in
            (
                try End(base, sockets[0], context, BUFFEREVENT_SSL_CONNECTING),
                try End(base, sockets[1], context, BUFFEREVENT_SSL_ACCEPTING)
            )
        }
        server.onMessage = { $0.send("answer to \($0.received)") }
        client.onMessage = { _ in loop.stop() }
    }

    var version: String { client.version }

    func free() {
        client.free()
        server.free()
        SSL_CTX_free(context)
    }
}

private final class End {
    private let stream: OpaquePointer
    private(set) var received = ""
    var onMessage: (End) -> Void = { _ in }

    init(_ base: OpaquePointer, _ socket: Int32, _ context: OpaquePointer, _ state: bufferevent_ssl_state) throws {
        let ssl = try #require(SSL_new(context))
        // Frees `ssl` and closes the socket with the bufferevent.
        stream = try #require(bufferevent_openssl_socket_new(base, socket, ssl, state, Int32(BEV_OPT_CLOSE_ON_FREE.rawValue)))
        bufferevent_setcb(
            stream, { _, context in Unmanaged<End>.fromOpaque(context!).takeUnretainedValue().read() }, nil, nil,
            Unmanaged.passUnretained(self).toOpaque())
        bufferevent_enable(stream, Int16(EV_READ | EV_WRITE))
    }

    var version: String { String(cString: SSL_get_version(bufferevent_openssl_get_ssl(stream))) }

    func send(_ text: String) { bufferevent_write(stream, text, text.utf8.count) }

    private func read() {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = bufferevent_read(stream, &bytes, bytes.count)
        // A message this small is one record of TLS, and arrives whole.
        received += String(decoding: bytes[..<count], as: UTF8.self)
        onMessage(self)
    }

    func free() { bufferevent_free(stream) }
}
