// TLS on a stream.

#if TLS

internal import EventLoop
public import EventLoopStreams

extension ByteStream {
    /// Makes this end the client of a TLS connection: everything that is written and read from now on is encrypted. Returns after the
    /// handshake, when the server's certificate has been verified.
    ///
    /// It may be called in the middle of a stream, after the two sides have agreed on it (STARTTLS). What was written before is sent as it is.
    /// What was received and not read belongs to the handshake: a server that sends more than the handshake there makes it fail, so nobody on
    /// the way can insert bytes that count as encrypted. For the same reason no read may be in progress: that throws EBUSY, and ends
    /// the stream. While a handler is being called, TLS begins when it returns.
    ///
    /// Any thread. After an error or a cancellation the stream has ended. An error in the files or names of `client` ends it, too, before a
    /// byte is sent. There is one exception: a call after TLS has begun throws EALREADY and changes nothing. If two calls run at the same time, both
    /// may fail and end the stream.
    ///
    /// - Parameters:
    ///   - client: the names, the trust and the certificate of this side.
    ///   - timeout: for the whole handshake, in the loop's time; also for a peer that sends a byte now and then.
    ///   - isolation: the caller's actor.
    /// - Throws: ``TLSError``; `StreamError.timedOut`; otherwise what reading the stream throws.
    public func startTLS(
        _ client: TLSClient, timeout: Duration = .seconds(30), isolation: isolated (any Actor)? = #isolation
    ) async throws { /* DOES CALLOUT */
        let address: String? =
            switch peerAddress {
            case .ipv4(let host, _), .ipv6(let host, _): host
            case .unix, nil: nil
            }
        let host = connectedHost ?? address
        let engine = try orClose { () throws(TLSError) in try client.makeEngine(host: host, address: peerAddress.map { "\($0)" }) }
        try await install(engine, timeout: timeout, isolation: isolation)
    }

    /// Makes this end the server of a TLS connection: everything that is written and read from now on is encrypted. Returns after the
    /// handshake, when the client's certificate has been verified, if the server requires one.
    ///
    /// Otherwise as the call for clients.
    public func startTLS(
        _ server: TLSServer, timeout: Duration = .seconds(30), isolation: isolated (any Actor)? = #isolation
    ) async throws { /* DOES CALLOUT */
        let engine = try orClose { () throws(TLSError) in try server.makeEngine() }
        try await install(engine, timeout: timeout, isolation: isolation)
    }

    /// The protocol that the two sides agreed on (ALPN), such as `h2`. Nil without TLS, before the end of the handshake, and if none was
    /// negotiated. Thread-safe.
    public var applicationProtocol: String? { engine?.session?.applicationProtocol }

    /// `TLSv1.2` or `TLSv1.3`; nil without TLS and before the end of the handshake. Thread-safe.
    public var tlsVersion: String? { engine?.session?.version }

    /// Whether the handshake resumed an earlier session, without certificates on the way. False without TLS and before the end of the
    /// handshake. Thread-safe.
    public var tlsSessionWasResumed: Bool { engine?.session?.wasResumed ?? false }

    /// The name that the client asked for (SNI), at the server. Nil at the client, without SNI, and before the end of the handshake.
    /// Thread-safe.
    public var tlsServerName: String? { engine?.session?.serverName }

    /// The peer's own certificate, in DER; nil if it sent none. On a server, that is the client's. Thread-safe.
    public var peerCertificate: [UInt8]? { engine?.session?.peerCertificate?.bytes }

    /// The subject of the peer's certificate, such as `CN=alice,O=Example`, with the most specific part first, as RFC 2253 writes it.
    /// Nil if the peer sent no certificate. Thread-safe.
    public var peerCertificateSubject: String? { engine?.session?.peerCertificate?.subject }

    /// Why TLS ended the stream; nil if it did not. The same error, as a sentence, is in `end`. Thread-safe.
    public var tlsError: TLSError? { engine?.failure }

    private var engine: TLSEngine? { layer as? TLSEngine }

    /// Closes the stream if there is no engine: the program asked for TLS, and must not go on in the clear.
    private func orClose(_ makeEngine: () throws(TLSError) -> TLSEngine) throws(TLSError) -> TLSEngine {
        do {
            return try makeEngine()
        } catch {
            close()
            throw error
        }
    }
}

#endif
