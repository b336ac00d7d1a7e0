// Rules proved here:
// - Files that cannot be used are typed errors with the file's name: from TLSServer.init, and from a client's startTLS.
// - An encrypted key asks nobody for its password.
// - A client's or server's value can be used from several threads at once, after its files are gone.

import EventLoop
import TestSupport
import Testing

@testable import EventLoopTLS

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite struct FileTests {
    private let files = Certificates()

    private func reason(_ body: () throws -> Void) -> String? {
        do {
            try body()
            return nil
        } catch {
            guard let error = error as? TLSError, error.kind == .configuration else { return "\(error)" }
            return error.description.replacing(files.folder, with: "…")
        }
    }

    @Test func `a server's files are read when it is made`() {
        let (one, two) = (files.makeIdentity("one"), files.makeIdentity("two"))
        func make(_ chain: String, _ key: String, _ clients: String? = nil, _ protocols: [String] = []) -> String? {
            reason {
                _ = try TLSServer(certificateChain: chain, privateKey: key, applicationProtocols: protocols, clientCertificates: clients)
            }
        }
        #expect(make(one.certificate, one.key) == nil)
        #expect(make(one.certificate, two.key) == "TLS: the private key in …/two.key for the certificate in …/one.pem: key values mismatch")
        #expect(make("/nonexistent", one.key) == "TLS: the certificates in /nonexistent: No such file or directory")
        #expect(make(one.certificate, "/nonexistent")?.hasSuffix("No such file or directory") == true)
        #expect(make(one.key, one.key)?.hasPrefix("TLS: the certificates in …/one.key: ") == true)
        #expect(make(one.certificate, one.certificate)?.hasPrefix("TLS: the private key in …/one.pem") == true)
        #expect(make(files.folder, one.key)?.hasPrefix("TLS: the certificates in …: ") == true)
        #expect(make(one.certificate, one.key, "/nonexistent")?.hasPrefix("TLS: the trusted certificates in /nonexistent: ") == true)
        #expect(make(one.certificate, one.key, one.key)?.hasPrefix("TLS: the trusted certificates in …/one.key: ") == true)
        #expect(make(one.certificate, one.key, nil, [""])?.hasSuffix("does not have 1 to 255 bytes") == true)
        #expect(
            make(one.certificate, one.key, nil, [String(repeating: "ü", count: 128)])?.hasSuffix("does not have 1 to 255 bytes") == true)
    }

    @Test func `a client's files are reported by startTLS`() {
        let (one, two) = (files.makeIdentity("one"), files.makeIdentity("two"))
        func start(_ client: TLSClient) -> String? { reason { _ = try client.makeEngine(host: "127.0.0.1") } }
        #expect(start(TLSClient(trustedCertificates: "/nonexistent"))?.contains("/nonexistent: ") == true)
        #expect(start(TLSClient(trustedCertificates: one.certificate)) == nil)
        #expect(start(TLSClient(certificate: one.certificate, privateKey: one.key)) == nil)
        #expect(start(TLSClient(certificate: one.certificate, privateKey: two.key))?.hasSuffix("key values mismatch") == true)
        #expect(start(TLSClient(certificate: one.certificate))?.hasPrefix("TLS: the private key in …/one.pem") == true)
        #expect(start(TLSClient(privateKey: one.key)) == "TLS: the private key in …/one.key has no certificate")
        #expect(start(TLSClient(minimumVersion: .tls13, maximumVersion: .tls12)) == "TLS: the minimum version is above the maximum version")
    }

    @Test func `an encrypted key is refused without a question`() {
        let one = files.makeIdentity("one")
        let message = reason { _ = try TLSServer(certificateChain: one.certificate, privateKey: files.encryptedCopy(ofKey: one.key)) }
        #expect(message?.hasPrefix("TLS: the private key in …/one.key.encrypted for the certificate in …/one.pem: ") == true)
    }

    @Test func `one value serves connections on several threads, when its files are gone`() throws {
        let root = files.makeIssuer("Root")
        let identity = files.makeIdentity("server", by: root)
        let client = TLSClient(serverName: "localhost", trustedCertificates: root.file, applicationProtocols: ["a"])
        let server = try TLSServer(
            certificateChain: identity.certificate, privateKey: identity.key, applicationProtocols: ["b", "a"], clientCertificates: nil)
        for file in [root.file, identity.certificate, identity.key] { unlink(file) }
        let done = Box(0)
        let threads = (0..<4).map { _ in
            joinableThread { _ in
                for _ in 0..<25 {
                    var pair = try EnginePair(client, server)
                    pair.exchange()
                    if pair.isDone && pair.server.session?.applicationProtocol == "a" { done.increment() }
                }
            }
        }
        for thread in threads { try thread.join() }
        #expect(done.value == 100)
    }

    @Test func `a zero byte in a text for OpenSSL is an error, and cuts nothing`() throws {
        let setup = Setup()
        for name in ["localhost\0.example.com", "127.0.0.1\0.example.com", "\0"] {
            let client = TLSClient(serverName: name, trustedCertificates: setup.root.file)
            #expect { try client.makeEngine(host: nil) } throws: { ($0 as? TLSError)?.kind == .configuration }
        }
        #expect { try setup.server(["h2\0"]) } throws: { ($0 as? TLSError)?.kind == .configuration }
        let files = [
            TLSClient(serverName: "a", trustedCertificates: setup.root.file + "\0.pem"),
            TLSClient(serverName: "a", certificate: setup.identity.certificate + "\0", privateKey: setup.identity.key),
            TLSClient(serverName: "a", certificate: setup.identity.certificate, privateKey: setup.identity.key + "\0"),
        ]
        for client in files {
            #expect { try client.makeEngine(host: nil) } throws: { ($0 as? TLSError)?.kind == .configuration }
        }
    }
}
