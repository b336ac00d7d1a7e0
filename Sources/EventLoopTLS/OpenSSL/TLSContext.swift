// The settings that connections share: certificates, keys, trusted issuers, versions, application protocols.
//
// Lifecycle of an SSL_CTX: a `TLSContext` creates it, changes it only in its init, and releases it in its deinit. OpenSSL counts references:
// each SSL object of an engine holds one, and uses the context from any thread (man page `openssl-threads`: an SSL_CTX may be used by
// several threads when its setters are not called any more).

#if TLS

internal import COpenSSL

final class TLSContext: @unchecked Sendable {
    // SAFETY: written only in init; OpenSSL locks what connections change in it.
    let raw: OpaquePointer
    /// The application protocols as RFC 7301 encodes them: each behind its length. They do not move, because OpenSSL's callback returns a
    /// pointer into them.
    private let protocols: UnsafeMutableBufferPointer<UInt8>
    /// For the callback that selects one by the client's server name.
    private var certificates: [ParsedCertificate] = []

    /// What both sides set.
    init(server: Bool, from minimum: TLSVersion, to maximum: TLSVersion, applicationProtocols: [String]) throws(TLSError) {
        guard minimum <= maximum else { throw TLSError(.configuration, "the minimum version is above the maximum version") }
        let list = try Self.encoded(applicationProtocols)
        Self.initializeOpenSSL()
        ERR_clear_error()
        guard let raw = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method()) else {
            throw TLSError.configuration("no context of OpenSSL")
        }
        self.raw = raw
        protocols = .allocate(capacity: list.count)
        _ = protocols.initialize(from: list)
        // From here on, a throw runs deinit.
        guard copenssl_prepare(raw, minimum.number, maximum.number) == 1 else { throw TLSError.configuration("the versions") }
        // Without this callback, OpenSSL would ask for the password of an encrypted key on the terminal, and wait.
        SSL_CTX_set_default_passwd_cb(raw) { _, _, _, _ in 0 }
    }

    /// OpenSSL's initialization, without the cleanup that it otherwise registers with `atexit`: `exit()` would free what the threads of loops still
    /// use. No effect if the program has initialized OpenSSL before; then it decides.
    static func initializeOpenSSL() { _ = openSSL }
    private static let openSSL: Void = {
        OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil)
    }()

    deinit {
        SSL_CTX_free(raw)
        protocols.deallocate()
    }

    private static func encoded(_ protocols: [String]) throws(TLSError) -> [UInt8] {
        var list: [UInt8] = []
        for name in protocols {
            guard let count = UInt8(exactly: name.utf8.count), count > 0 else {
                throw TLSError(.configuration, "the application protocol \"\(name)\" does not have 1 to 255 bytes")
            }
            try TLSError.checkText(name, "the application protocol \"\(name)\"")
            list.append(count)
            list += name.utf8
        }
        guard list.count <= 65_535 else {
            throw TLSError(.configuration, "the application protocols together have more than 65,535 bytes")
        }
        return list
    }

    /// The certificates that this side sends, its own first, and its key. PEM files.
    func useCertificate(_ chain: String, privateKey: String) throws(TLSError) {
        try TLSError.checkText(chain, "the path of the certificates")
        try TLSError.checkText(privateKey, "the path of the private key")
        ERR_clear_error()
        guard SSL_CTX_use_certificate_chain_file(raw, chain) == 1 else { throw TLSError.configuration("the certificates in \(chain)") }
        guard SSL_CTX_use_PrivateKey_file(raw, privateKey, SSL_FILETYPE_PEM) == 1, SSL_CTX_check_private_key(raw) == 1 else {
            throw TLSError.configuration("the private key in \(privateKey) for the certificate in \(chain)")
        }
    }

    /// The issuers that are trusted: those in a PEM file, or the system's.
    func trust(_ file: String?) throws(TLSError) {
        ERR_clear_error()
        guard let file else {
            guard SSL_CTX_set_default_verify_paths(raw) == 1 else { throw TLSError.configuration("the system's trusted certificates") }
            return
        }
        try TLSError.checkText(file, "the path of the trusted certificates")
        guard SSL_CTX_load_verify_file(raw, file) == 1 else { throw TLSError.configuration("the trusted certificates in \(file)") }
        // What the program names is trusted, also if it is signed by another issuer.
        X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(raw), UInt(X509_V_FLAG_PARTIAL_CHAIN))
    }

    // MARK: Client

    func verifyServers(_ isOn: Bool) { SSL_CTX_set_verify(raw, isOn ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nil) }

    /// The engine of a connection decides whether its sessions are kept.
    func rememberSessions() {
        copenssl_remember_sessions(raw) { connection, session in
            guard let connection, let session, let engine = TLSEngine.of(connection) else { return 0 }
            return engine.remember(session) ? 1 : 0
        }
    }

    func offerApplicationProtocols() throws(TLSError) {
        guard !protocols.isEmpty else { return }
        // Unlike other functions, it returns 0 on success.
        guard SSL_CTX_set_alpn_protos(raw, protocols.baseAddress, UInt32(protocols.count)) == 0 else {
            throw TLSError.configuration("the application protocols")
        }
    }

    // MARK: Server

    /// The first one is for clients that ask for no name, or for one that none has.
    func useCertificates(_ list: [ParsedCertificate]) throws(TLSError) {
        ERR_clear_error()
        guard let first = list.first else { throw TLSError(.configuration, "a server needs a certificate, and the list is empty") }
        guard first.use(in: raw) else { throw TLSError.configuration("the first certificate") }
        certificates = list
        if list.count == 1 { return }
        SSL_CTX_set_cert_cb(
            raw,
            { connection, context in
                // SAFETY: the context outlives its connections, whose engines retain it.
                guard let context, let connection else { return 0 }
                let certificates = Unmanaged<TLSContext>.fromOpaque(context).takeUnretainedValue().certificates
                guard let name = SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name) else { return 1 }
                guard let match = certificates.first(where: { $0.matches(name) }) else { return 1 }
                return match.use(on: connection) ? 1 : 0
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    /// Clients need a certificate of an issuer in this PEM file.
    func requireClientCertificates(of file: String) throws(TLSError) {
        try trust(file)
        guard let names = SSL_load_client_CA_file(file) else { throw TLSError.configuration("the trusted certificates in \(file)") }
        SSL_CTX_set_client_CA_list(raw, names)
        SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
    }

    /// A client's session is in its ticket. OpenSSL's cache would keep 20,480 sessions of clients without tickets.
    func keepSessionsInTickets() throws(TLSError) {
        copenssl_disable_session_cache(raw)
        copenssl_accept_server_names(raw)
        // With client certificates, OpenSSL refuses to resume a session without such a name.
        let name: [UInt8] = Array("EventLoopTLS".utf8)
        guard SSL_CTX_set_session_id_context(raw, name, UInt32(name.count)) == 1 else {
            throw TLSError.configuration("the session context")
        }
    }

    /// The server's order counts. A client that offers other protocols only gets the alert no_application_protocol (RFC 7301, section 3.2).
    func selectApplicationProtocol() {
        guard !protocols.isEmpty else { return }
        SSL_CTX_set_alpn_select_cb(
            raw,
            { _, selected, selectedCount, offered, offeredCount, context in
                // SAFETY: the context outlives its connections, whose engines retain it.
                guard let context, let selected, let selectedCount else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                let own = Unmanaged<TLSContext>.fromOpaque(context).takeUnretainedValue().protocols
                var pointer: UnsafeMutablePointer<UInt8>?
                let result = SSL_select_next_proto(
                    &pointer, selectedCount, own.baseAddress, UInt32(own.count), offered, offeredCount)
                guard result == OPENSSL_NPN_NEGOTIATED else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                selected.pointee = UnsafePointer(pointer)
                return SSL_TLSEXT_ERR_OK
            }, Unmanaged.passUnretained(self).toOpaque())
    }
}

#endif
