// Certificates of one test, made with libcrypto in a folder that lives as long as the object.

import COpenSSL
import TestSupport

/// The files of a certificate and its key.
struct Identity: Sendable {
    /// PEM: the certificate, and behind it those of its issuers without the root.
    let certificate: String
    let key: String
}

/// When a certificate is valid, in days from now.
struct Validity: Sendable {
    var from = -1
    var to = 1
    static let today = Validity()
    static let past = Validity(from: -9, to: -2)
    static let future = Validity(from: 2, to: 9)
}

final class Certificates: @unchecked Sendable {
    // SAFETY: used by one thread at a time: by the test, before it starts others.
    let folder = makeTemporaryDirectory()
    private var serial = 1

    /// A certificate that signs others.
    final class Issuer: @unchecked Sendable {
        // SAFETY: constants; libcrypto's functions that read them are thread-safe.
        fileprivate let certificate: OpaquePointer
        fileprivate let key: OpaquePointer
        /// PEM: what a peer must trust.
        let file: String

        fileprivate init(_ certificate: OpaquePointer, _ key: OpaquePointer, _ file: String) {
            (self.certificate, self.key, self.file) = (certificate, key, file)
        }

        deinit {
            X509_free(certificate)
            EVP_PKEY_free(key)
        }
    }

    deinit { removeFlatDirectory(folder) }

    /// A root, or an issuer below another one.
    func makeIssuer(_ name: String, by parent: Issuer? = nil, _ validity: Validity = .today) -> Issuer {
        let key = makeKey()
        let extensions = [(NID_basic_constraints, "critical,CA:TRUE"), (NID_key_usage, "critical,keyCertSign,cRLSign")]
        let certificate = makeCertificate(name, key, extensions, by: parent, validity)
        let file = path(name, "ca.pem")
        writePEM(file) { PEM_write_bio_X509($0, certificate) }
        return Issuer(certificate, key, file)
    }

    /// A certificate for a server or a client. Without `parent`, it is signed by itself.
    ///
    /// - Parameter names: as openssl.cnf writes them, such as `DNS:localhost`.
    func makeIdentity(
        _ name: String, names: [String] = ["DNS:localhost", "IP:127.0.0.1"], by parent: Issuer? = nil, _ validity: Validity = .today,
        usage: String = "serverAuth,clientAuth", sending chain: [Issuer] = []
    ) -> Identity {
        let key = makeKey()
        defer { EVP_PKEY_free(key) }
        var extensions = [(NID_ext_key_usage, usage)]
        if !names.isEmpty { extensions.append((NID_subject_alt_name, names.joined(separator: ","))) }
        let certificate = makeCertificate(name, key, extensions, by: parent, validity)
        defer { X509_free(certificate) }
        let identity = Identity(certificate: path(name, "pem"), key: path(name, "key"))
        writePEM(identity.certificate) { file in
            ([certificate] + chain.map(\.certificate)).allSatisfy { PEM_write_bio_X509(file, $0) == 1 } ? 1 : 0
        }
        writePEM(identity.key) { PEM_write_bio_PrivateKey($0, key, nil, nil, 0, nil, nil) }
        return identity
    }

    /// A key's file that needs a password.
    func encryptedCopy(ofKey file: String) -> String {
        let input = BIO_new_file(file, "r")
        defer { BIO_free(input) }
        let key = PEM_read_bio_PrivateKey(input, nil, nil, nil)
        defer { EVP_PKEY_free(key) }
        var password = Array("secret".utf8)
        let copy = file + ".encrypted"
        writePEM(copy) { PEM_write_bio_PrivateKey($0, key, EVP_aes_128_cbc(), &password, Int32(password.count), nil, nil) }
        return copy
    }

    func path(_ name: String, _ kind: String) -> String { "\(folder)/\(name.filter { $0.isLetter || $0.isNumber }).\(kind)" }

    // MARK: libcrypto

    private func makeKey() -> OpaquePointer {
        let context = EVP_PKEY_CTX_new_from_name(nil, "EC", nil)
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        check(EVP_PKEY_keygen_init(context))
        check(EVP_PKEY_CTX_set_group_name(context, "P-256"))
        check(EVP_PKEY_generate(context, &key))
        return key!  // just checked
    }

    private func makeCertificate(
        _ name: String, _ key: OpaquePointer, _ extensions: [(Int32, String)], by parent: Issuer?, _ validity: Validity
    ) -> OpaquePointer {
        let certificate = X509_new()!  // nil only without memory
        check(X509_set_version(certificate, 2))
        serial += 1
        check(ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial))
        X509_gmtime_adj(X509_getm_notBefore(certificate), validity.from * 86_400)
        X509_gmtime_adj(X509_getm_notAfter(certificate), validity.to * 86_400)
        check(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8, name, -1, -1, 0))
        check(X509_set_issuer_name(certificate, X509_get_subject_name(parent?.certificate ?? certificate)))
        check(X509_set_pubkey(certificate, key))
        var context = X509V3_CTX()
        X509V3_set_ctx(&context, parent?.certificate ?? certificate, certificate, nil, nil, 0)
        for (kind, value) in extensions {
            let made = X509V3_EXT_conf_nid(nil, &context, kind, value)
            check(X509_add_ext(certificate, made, -1))
            X509_EXTENSION_free(made)
        }
        check(X509_sign(certificate, parent?.key ?? key, EVP_sha256()) > 0 ? 1 : 0)
        return certificate
    }

    private func writePEM(_ file: String, _ body: (OpaquePointer?) -> Int32) {
        let output = BIO_new_file(file, "w")
        check(body(output))
        BIO_free(output)
    }

    private func check(_ result: Int32) { precondition(result == 1, "libcrypto: error \(ERR_peek_error())") }
}
