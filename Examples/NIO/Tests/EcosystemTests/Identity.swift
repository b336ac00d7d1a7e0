// A certificate for localhost that signs itself, made by the program openssl in a folder that lives as long as the object.

import NIOSSL
import TestSupport
import Testing

final class Identity {
    private let folder = makeTemporaryDirectory()

    init() throws {
        _ = try output(
            of: "openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder + "/key", "-out", folder + "/certificate",
            ])
    }

    deinit { removeFlatDirectory(folder) }

    var server: TLSConfiguration {
        get throws {
            .makeServerConfiguration(
                certificateChain: try NIOSSLCertificate.fromPEMFile(folder + "/certificate").map { .certificate($0) },
                privateKey: .privateKey(try NIOSSLPrivateKey(file: folder + "/key", format: .pem)))
        }
    }

    var client: TLSConfiguration {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.trustRoots = .file(folder + "/certificate")
        return configuration
    }
}
