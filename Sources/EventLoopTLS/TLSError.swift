// Why a handshake or a TLS connection failed.

#if TLS

/// Why a TLS connection was not made, or ended.
///
/// `startTLS` throws it, `TLSServer.init` throws it for its files, and `ByteStream.tlsError` has it after a stream has ended with
/// `.failed`. Compare `kind`; the sentences are for people, and depend on OpenSSL's version.
public struct TLSError: Error, Sendable, Equatable {
    /// What went wrong, for programs.
    public enum Kind: Sendable, Equatable {
        /// The peer's certificate, or one above it, has expired.
        case certificateExpired
        /// The peer's certificate, or one above it, is not valid yet.
        case certificateNotYetValid
        /// The peer's certificate is signed by itself, or its chain ends with such a certificate, and that one is not trusted.
        case selfSignedCertificate
        /// The issuer of the peer's certificate is not trusted, or the peer has not sent the certificates between.
        case unknownIssuer
        /// The certificate is valid for other names.
        case hostNameMismatch
        /// The certificate is refused for another reason: revoked, for another purpose, a weak key or signature.
        case certificateRejected
        /// A client has sent no certificate, and the server requires one.
        case certificateMissing
        /// The peer has ended the connection with this alert (RFC 8446, section 6): for example 40 if the two have no cipher in common,
        /// 42 to 48 and 116 if it does not accept this side's certificate, 120 if the two have no application protocol in common.
        case alert(UInt8)
        /// The peer does not follow the protocol, or does not speak TLS at all, or the two have nothing in common.
        case protocolError
        /// The bytes ended without TLS's end: the connection was cut, by an attacker or a crash, and the last message may be incomplete.
        case truncated
        /// This side's own files, names or versions cannot be used.
        case configuration
    }

    /// What went wrong.
    public let kind: Kind
    /// One sentence for a person, from OpenSSL.
    public let reason: String
    /// The name that a client has asked for; nil on a server.
    public let serverName: String?

    init(_ kind: Kind, _ reason: String, serverName: String? = nil) {
        (self.kind, self.reason, self.serverName) = (kind, reason, serverName)
    }
}

extension TLSError: CustomStringConvertible {
    /// One line: `TLS with example.com: certificate has expired`.
    public var description: String { "TLS" + (serverName.map { " with \($0)" } ?? "") + ": " + reason }
}

#endif
