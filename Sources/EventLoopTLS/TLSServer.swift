// How a server accepts TLS connections.

#if TLS

internal import COpenSSL

/// How a server accepts TLS connections: its certificate, what it offers, and which clients it accepts.
///
/// Make one value, and use it for all connections, from any thread: its files are read once, by `init`. To replace a certificate, make a
/// new value, and use that for later connections.
public struct TLSServer: Sendable {
    let context: TLSContext

    /// Reads the files; throws a ``TLSError`` whose kind is `.configuration` if one cannot be read, or if the key is not that of the
    /// certificate.
    ///
    /// - Parameters:
    ///   - certificateChain: the path of a PEM file with the server's certificate, and behind it those of its issuers.
    ///   - privateKey: the path of a PEM file with the certificate's key, not encrypted.
    ///   - applicationProtocols: what the server speaks (ALPN), most wanted first. The first one that the client offers too is chosen. A client
    ///     that offers only others is refused; one that offers none is accepted, and `applicationProtocol` is nil.
    ///   - clientCertificates: the path of a PEM file with issuers. If this is not nil, clients without a certificate of one of them are
    ///     refused.
    ///   - minimumVersion: clients that speak only older versions are refused.
    ///   - maximumVersion: for clients that mishandle a newer one.
    public init(
        certificateChain: String, privateKey: String, applicationProtocols: [String] = [], clientCertificates: String? = nil,
        minimumVersion: TLSVersion = .tls12, maximumVersion: TLSVersion = .tls13
    ) throws(TLSError) {
        context = try TLSContext(server: true, from: minimumVersion, to: maximumVersion, applicationProtocols: applicationProtocols)
        try context.useCertificate(certificateChain, privateKey: privateKey)
        try prepare(clientCertificates)
    }

    /// Several certificates: the one whose names match the client's server name (SNI), in the order of the list; the first if none does, or
    /// if the client asks for no name. Names are the alternative names of a certificate, where a wildcard stands for one whole label.
    ///
    /// - Parameters:
    ///   - certificates: at least one; a ``TLSError`` whose kind is `.configuration` otherwise.
    ///   - applicationProtocols: as for the other initializer.
    ///   - clientCertificates: as for the other initializer, the path of a PEM file with issuers.
    ///   - minimumVersion: clients that speak only older versions are refused.
    ///   - maximumVersion: for clients that mishandle a newer one.
    public init(
        certificates: [TLSCertificate], applicationProtocols: [String] = [], clientCertificates: String? = nil,
        minimumVersion: TLSVersion = .tls12, maximumVersion: TLSVersion = .tls13
    ) throws(TLSError) {
        context = try TLSContext(server: true, from: minimumVersion, to: maximumVersion, applicationProtocols: applicationProtocols)
        try context.useCertificates(certificates.map(\.parsed))
        try prepare(clientCertificates)
    }

    private func prepare(_ clientCertificates: String?) throws(TLSError) {
        try context.keepSessionsInTickets()
        context.selectApplicationProtocol()
        if let clientCertificates { try context.requireClientCertificates(of: clientCertificates) }
    }

    func makeEngine() throws(TLSError) -> TLSEngine {
        try TLSEngine(context, serverName: nil) { SSL_set_accept_state($0) }
    }
}

#endif
