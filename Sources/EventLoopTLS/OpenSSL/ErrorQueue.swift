// OpenSSL's errors.
//
// OpenSSL keeps errors in a queue of the thread. `SSL_get_error` reads that queue (its man page: "the current thread's OpenSSL error queue must
// be empty before the TLS/SSL I/O operation"). So each call clears it before, and drains it after a failure.

#if TLS

internal import COpenSSL
internal import EventLoop
internal import EventLoopLibC

/// One entry of the queue.
struct OpenSSLError {
    let library: Int32
    let reason: Int32
    let sentence: String

    init(code: UInt) {
        (library, reason) = (copenssl_error_library(code), copenssl_error_reason(code))
        if library == ERR_LIB_SYS {
            sentence = "\(String(cString: strerror(reason)))"
        } else {
            sentence = ERR_reason_error_string(code).map { String(cString: $0) } ?? "error \(code) of OpenSSL"
        }
    }

    /// Takes all errors of the calling thread, the first one first.
    static func drain() -> [OpenSSLError] {
        var errors: [OpenSSLError] = []
        while true {  // ends: the queue has at most 16 entries
            let code = ERR_get_error()
            guard code != 0 else { return errors }
            errors.append(OpenSSLError(code: code))
        }
    }
}

extension TLSError {
    /// What a failed call on a connection left in the thread's queue. Drains it.
    init(of connection: OpaquePointer, serverName: String?) {
        let errors = OpenSSLError.drain()
        guard let own = errors.first(where: { $0.library == ERR_LIB_SSL }) ?? errors.first else {
            // Without an error in the queue, the peer has ended the connection: with close_notify during the handshake, or without.
            self.init(.truncated, Self.truncation, serverName: serverName)
            return
        }
        let sentence = own.sentence
        guard own.library == ERR_LIB_SSL else {
            self.init(.protocolError, sentence, serverName: serverName)
            return
        }
        // OpenSSL adds the number of a received alert to this offset.
        let alert = own.reason - SSL_AD_REASON_OFFSET
        switch own.reason {
        case SSL_R_CERTIFICATE_VERIFY_FAILED:
            self.init(verification: SSL_get_verify_result(connection), serverName: serverName)
        case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
            self.init(.certificateMissing, sentence, serverName: serverName)
        case SSL_R_UNEXPECTED_EOF_WHILE_READING:
            self.init(.truncated, Self.truncation, serverName: serverName)
        case _ where alert > 0 && alert <= 255:
            let name = SSL_alert_desc_string_long(alert).map { String(cString: $0) } ?? "unknown"
            self.init(.alert(UInt8(alert)), "the peer sent the alert \(alert), \(name)", serverName: serverName)
        default:
            self.init(.protocolError, sentence, serverName: serverName)
        }
    }

    private static let truncation = "truncated: the peer has ended the connection before its TLS end"

    private init(verification result: Int, serverName: String?) {
        let sentence = X509_verify_cert_error_string(result).map { String(cString: $0) } ?? "certificate verify failed"
        let kind: Kind =
            switch Int32(truncatingIfNeeded: result) {
            case X509_V_ERR_CERT_HAS_EXPIRED: .certificateExpired
            case X509_V_ERR_CERT_NOT_YET_VALID: .certificateNotYetValid
            case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN: .selfSignedCertificate
            case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
                X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
                .unknownIssuer
            case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH: .hostNameMismatch
            default: .certificateRejected
            }
        self.init(kind, "the peer's certificate is refused: \(sentence)", serverName: serverName)
    }

    /// A file, a name or a version that OpenSSL refused. Drains the queue.
    static func configuration(_ what: String) -> TLSError {
        // The last one says what was attempted, the first one why it failed.
        let sentence = OpenSSLError.drain().first?.sentence
        return TLSError(.configuration, what + (sentence.map { ": \($0)" } ?? ""))
    }

    /// OpenSSL's functions read a text up to its first zero byte: what they use would be less than what the program has checked.
    static func checkText(_ text: String, _ what: String) throws(TLSError) {
        if text.utf8.contains(0) { throw TLSError(.configuration, "\(what) has a zero byte") }
    }

    /// How a stream ends with this.
    var sourceError: RunLoop.SourceError { .system(operation: description, errno: kind == .truncated ? ECONNRESET : EPROTO) }
}

#endif
