// A certificate with its issuers and its key, from text.
//
// Lifecycle of the objects of OpenSSL: a `ParsedCertificate` creates them in its init and releases them in its deinit. A `TLSContext` retains it
// for the callback that selects a certificate, and OpenSSL counts its own references for each connection.

#if TLS

internal import COpenSSL

/// A certificate chain and its key, as PEM text; the key may be encrypted.
///
/// A program that has them in files reads those first. Thread-safe; one value serves any number of ``TLSServer`` values.
public struct TLSCertificate: Sendable {
    let parsed: ParsedCertificate

    /// Reads the text. Takes time only for an encrypted key, whose passphrase is made slow to guess. Calls out to nobody.
    ///
    /// - Parameters:
    ///   - chain: PEM text of the certificate, and behind it those of its issuers.
    ///   - privateKey: PEM text of the certificate's key.
    ///   - passphrase: what the key is encrypted with, if it is.
    /// - Throws: a ``TLSError`` whose kind is `.configuration` for text that cannot be read, a wrong or missing passphrase, and a key that is not
    ///   the certificate's.
    public init(chain: String, privateKey: String, passphrase: String? = nil) throws(TLSError) {
        try TLSError.checkText(chain, "the text of the certificates")
        try TLSError.checkText(privateKey, "the text of the private key")
        if let passphrase { try TLSError.checkText(passphrase, "the passphrase of the private key") }
        parsed = try ParsedCertificate(chain: chain, privateKey: privateKey, passphrase: passphrase)
    }
}

final class ParsedCertificate: @unchecked Sendable {
    // SAFETY: written only in init; OpenSSL's functions that read these, or count their references, are thread-safe.
    private let issuers: OpaquePointer
    private var certificate: OpaquePointer?
    private var key: OpaquePointer?

    fileprivate init(chain: String, privateKey: String, passphrase: String?) throws(TLSError) {
        TLSContext.initializeOpenSSL()
        ERR_clear_error()
        guard let issuers = copenssl_chain_new() else { throw TLSError.configuration("no memory for certificates") }
        self.issuers = issuers
        // From here on, a throw runs deinit.
        try readCertificates(chain)
        key = Self.reading(privateKey) { text in
            guard var passphrase = passphrase.map({ $0.utf8CString }) else {
                // Without a callback, OpenSSL would ask on the terminal, and wait.
                return PEM_read_bio_PrivateKey(text, nil, { _, _, _, _ in -1 }, nil)
            }
            defer { passphrase.withUnsafeMutableBytes { OPENSSL_cleanse($0.baseAddress, $0.count) } }
            // Without a callback, the last argument is a text that ends with a zero byte.
            return passphrase.withUnsafeMutableBytes { PEM_read_bio_PrivateKey(text, nil, nil, $0.baseAddress) }
        }
        guard key != nil else { throw TLSError.configuration("the private key") }
        guard X509_check_private_key(certificate, key) == 1 else { throw TLSError.configuration("the private key for the certificate") }
    }

    deinit {
        X509_free(certificate)
        EVP_PKEY_free(key)
        copenssl_chain_free(issuers)
    }

    private func readCertificates(_ chain: String) throws(TLSError) {
        let isComplete = Self.reading(chain) { text -> Bool in
            certificate = PEM_read_bio_X509_AUX(text, nil, { _, _, _, _ in -1 }, nil)
            guard certificate != nil else { return false }
            while let issuer = PEM_read_bio_X509(text, nil, { _, _, _, _ in -1 }, nil) {  // ends: with the text
                if copenssl_chain_push(issuers, issuer) == 0 {
                    X509_free(issuer)
                    return false
                }
            }
            // The text ends with an error that says so; any other one is of a damaged certificate.
            let error = ERR_peek_last_error()
            return copenssl_error_library(error) == ERR_LIB_PEM && copenssl_error_reason(error) == PEM_R_NO_START_LINE
        }
        guard isComplete == true else { throw TLSError.configuration("the certificates") }
        ERR_clear_error()
    }

    private static func reading<Result>(_ text: String, _ body: (OpaquePointer) -> Result?) -> Result? {
        var text = text
        return text.withUTF8 { bytes in
            guard let count = Int32(exactly: bytes.count), let bio = BIO_new_mem_buf(bytes.baseAddress, count) else { return nil }
            defer { BIO_free(bio) }
            return body(bio)
        }
    }

    /// Whether it is for this name: in its alternative names, where a wildcard stands for one whole label.
    func matches(_ name: UnsafePointer<CChar>) -> Bool {
        let flags = UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)
        return X509_check_host(certificate, name, 0, flags, nil) == 1
    }

    func use(in context: OpaquePointer) -> Bool { SSL_CTX_use_cert_and_key(context, certificate, key, issuers, 1) == 1 }

    /// Instead of those of the context.
    func use(on connection: OpaquePointer) -> Bool {
        SSL_certs_clear(connection)
        return SSL_use_cert_and_key(connection, certificate, key, issuers, 1) == 1
    }
}

#endif
