// How a client makes TLS connections.

#if TLS

internal import COpenSSL

/// How a client makes TLS connections: which servers it trusts, what it offers, and who it is.
///
/// Make one value, and use it for many connections, from any thread: its files are read once, by `init`. If a file cannot be used,
/// `startTLS` throws a ``TLSError`` whose kind is `.configuration`.
///
///     let stream = try await ByteStream.connect(host: "example.com", port: 443, on: loop)
///     try await stream.startTLS(TLSClient())
public struct TLSClient: Sendable {
    /// What is checked of a server's certificate.
    public enum Verification: Sendable, Equatable {
        /// Its chain ends at a trusted certificate, all are valid today, and the server's is for the name that the client asked for.
        case full
        /// Its chain only. Anybody with a certificate of a trusted issuer, for whatever name, can pose as the server.
        case chainOnly
        /// Nothing. Anybody on the way can read and change everything.
        case none
    }

    let context: Result<TLSContext, TLSError>
    let serverName: String?
    let verification: Verification
    private let sessions = TLSSessionStore()

    /// Whether sessions are remembered and resumed, which saves a handshake most of its time. On by default. This value and its copies share
    /// what they remember: for each server name and address, of the last 256. A resumed session has the certificate that was verified when it
    /// was made. In TLS 1.3 a server sends its tickets behind the handshake: a connection that reads nothing gets none.
    public var resumesSessions = true

    /// Whether an end without close_notify is a failure, `.truncated`. On by default. If it is off, that is an end of stream, for peers
    /// that never send one: then the program's own protocol must say where a message ends, because anybody on the way can cut it.
    public var requiresCloseNotify = true

    /// - Parameters:
    ///   - serverName: the name or the numeric IP address that must be in the server's certificate: in its alternative names, where a
    ///     wildcard stands for one whole label; the common name does not count. Names are also sent to the server (SNI), in the clear;
    ///     addresses are not. A name outside ASCII must be in its encoded form, `xn--…`. If this is nil, it is the host that the
    ///     stream was connected to by `ByteStream.connect(host:port:)`, or the address of its peer.
    ///   - trustedCertificates: the path of a PEM file with the only certificates to trust. A server's own certificate may be among them.
    ///     If this is nil, the system's certificates are trusted: OpenSSL's folder, which the environment variables `SSL_CERT_FILE` and
    ///     `SSL_CERT_DIR` replace.
    ///   - applicationProtocols: what the client offers (ALPN), for example `["h2", "http/1.1"]`; 1 to 255 bytes each.
    ///   - certificate: the path of a PEM file with the client's certificate, and behind it those of its issuers.
    ///   - privateKey: the path of a PEM file with the certificate's key, not encrypted. If this is nil, the key is in `certificate`.
    ///   - minimumVersion: servers that speak only older versions are refused.
    ///   - maximumVersion: for servers that mishandle a newer one.
    ///   - verification: what is checked of the server's certificate.
    public init(
        serverName: String? = nil, trustedCertificates: String? = nil, applicationProtocols: [String] = [], certificate: String? = nil,
        privateKey: String? = nil, minimumVersion: TLSVersion = .tls12, maximumVersion: TLSVersion = .tls13,
        verification: Verification = .full
    ) {
        (self.serverName, self.verification) = (serverName, verification)
        context = Result { () throws(TLSError) in
            let context = try TLSContext(
                server: false, from: minimumVersion, to: maximumVersion, applicationProtocols: applicationProtocols)
            context.verifyServers(verification != .none)
            context.rememberSessions()
            if verification != .none { try context.trust(trustedCertificates) }
            try context.offerApplicationProtocols()
            if let certificate {
                try context.useCertificate(certificate, privateKey: privateKey ?? certificate)
            } else if let privateKey {
                throw TLSError(.configuration, "the private key in \(privateKey) has no certificate")
            }
            return context
        }
    }

    /// - Parameters:
    ///   - host: to expect if there is no `serverName`; nil if it is not known.
    ///   - address: of the peer, for the session that is resumed.
    func makeEngine(host: String?, address: String? = nil) throws(TLSError) -> TLSEngine {
        let context = try context.get()
        let name = serverName ?? host
        if name == nil && verification == .full {
            throw TLSError(.configuration, "there is no name to check: TLSClient needs serverName, because the peer has no host")
        }
        let key = TLSSessionStore.Key(serverName: name, address: address ?? "")
        return try TLSEngine(context, serverName: name, store: resumesSessions ? (sessions, key) : nil) { connection throws(TLSError) in
            SSL_set_connect_state(connection)
            if !requiresCloseNotify { copenssl_ignore_missing_close_notify(connection) }
            if let name { try expect(ServerName(name), on: connection) }
        }
    }

    private func expect(_ name: ServerName, on connection: OpaquePointer) throws(TLSError) {
        guard let parameters = SSL_get0_param(connection) else { throw TLSError.configuration("no parameters of OpenSSL") }
        switch name {
        case .address(let text):
            guard verification == .full else { return }
            guard X509_VERIFY_PARAM_set1_ip_asc(parameters, text) == 1 else { throw TLSError.configuration("the address \(text)") }
        case .name(let text):
            guard copenssl_set_server_name(connection, text) == 1 else {
                throw TLSError.configuration("the server name \"\(text)\"")
            }
            guard verification == .full else { return }
            // RFC 9525: a wildcard is a whole label, and the common name of the subject is not an identity.
            X509_VERIFY_PARAM_set_hostflags(
                parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
            guard X509_VERIFY_PARAM_set1_host(parameters, text, text.utf8.count) == 1 else {
                throw TLSError.configuration("the server name \"\(text)\"")
            }
        }
    }
}

/// Whom a client wants to talk to.
enum ServerName: Equatable {
    case name(String)
    /// A numeric IP address, without brackets and zone.
    case address(String)

    init(_ text: String) throws(TLSError) {
        try TLSError.checkText(text, "the server name")
        let bare = text.hasPrefix("[") && text.hasSuffix("]") ? String(text.dropFirst().dropLast()) : text
        let address = String(bare.prefix { $0 != "%" })
        if let parsed = a2i_IPADDRESS(address) {
            ASN1_OCTET_STRING_free(parsed)
            self = .address(address)
            return
        }
        ERR_clear_error()
        // The last dot of an absolute name is not part of it in TLS (RFC 6066, section 3).
        let name = text.hasSuffix(".") ? String(text.dropLast()) : text
        let isPlain = name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f }
        guard isPlain, !name.isEmpty, !name.hasPrefix("."), name.utf8.count <= 253 else {
            throw TLSError(
                .configuration, "the server name must have 1 to 253 characters of ASCII (xn--… for others)", serverName: text)
        }
        self = .name(name)
    }
}

#endif
