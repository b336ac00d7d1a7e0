// What a handshake agreed on.
//
// Lifecycle of an X509: OpenSSL counts its references. A `PeerCertificate` owns one, and releases it in its deinit.

#if TLS

internal import COpenSSL

struct TLSSession: Sendable {
    /// `TLSv1.3`
    let version: String
    let applicationProtocol: String?
    let peerCertificate: PeerCertificate?
    let wasResumed: Bool
    /// What the client asked for; nil at the client.
    let serverName: String?

    /// After the handshake.
    init(of connection: OpaquePointer) {
        version = String(cString: SSL_get_version(connection))
        var name: UnsafePointer<UInt8>?
        var count: UInt32 = 0
        SSL_get0_alpn_selected(connection, &name, &count)
        applicationProtocol = name.map { String(decoding: UnsafeBufferPointer(start: $0, count: Int(count)), as: UTF8.self) }
        wasResumed = copenssl_session_was_resumed(connection) == 1
        let asked = SSL_is_server(connection) == 1 ? SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name) : nil
        serverName = asked.map { String(cString: $0) }
        peerCertificate = SSL_get1_peer_certificate(connection).map(PeerCertificate.init)
    }
}

/// The certificate of the peer itself, without those above it.
final class PeerCertificate: @unchecked Sendable {
    // SAFETY: an X509 is not changed after the handshake, and OpenSSL's functions that read one are thread-safe.
    private let certificate: OpaquePointer

    /// Takes over the reference.
    fileprivate init(_ certificate: OpaquePointer) { self.certificate = certificate }

    deinit { X509_free(certificate) }

    /// DER.
    var bytes: [UInt8] {
        let count = Int(i2d_X509(certificate, nil))
        guard count > 0 else { return [] }
        return [UInt8](unsafeUninitializedCapacity: count) { space, filled in
            var end = space.baseAddress
            filled = max(0, Int(i2d_X509(certificate, &end)))
        }
    }

    /// `CN=alice,O=Example`, as RFC 2253 writes it: special characters are escaped.
    var subject: String {
        guard let text = BIO_new(BIO_s_mem()) else { return "" }
        defer { BIO_free(text) }
        copenssl_print_name(text, X509_get_subject_name(certificate))
        var bytes = [UInt8](repeating: 0, count: Int(BIO_ctrl_pending(text)))
        let count = BIO_read(text, &bytes, Int32(bytes.count))
        return String(decoding: bytes.prefix(Int(max(0, count))), as: UTF8.self)
    }
}

#endif
