// Rules proved here, for the example tls-service:
// - It serves over TLS, reads its certificate again on SIGHUP, and keeps the connections that it has.
// - Control-C and SIGTERM end it quietly when its clients have gone.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct TLSServiceTests {
    private let setup = Setup()

    @Test(arguments: [SIGINT, SIGTERM]) func `a service over TLS reloads, and ends quietly`(signal: Int32) async throws {
        let program = Program(
            path: try builtProgramPath("tls-service"), [setup.identity.certificate, setup.identity.key], in: setup.files.folder)
        try await suspendUntil("it listens") { program.output.contains("listening") && program.output.contains("127.0.0.1:") }
        let address = try #require(program.output.split(separator: "127.0.0.1:").dropFirst().first)
        let port = try #require(UInt16(address.prefix { $0.isNumber }))
        try await withLoops(1) { loops in
            let client = try await ByteStream.connect(to: .ipv4(host: "127.0.0.1", port: port), on: loops[0])
            try await client.startTLS(setup.client())
            try await client.write("one\n")
            #expect(try await client.read(exactly: 4) == Array("one\n".utf8))
            program.kill(SIGHUP)
            try await suspendUntil("the certificate is read") { program.output.contains("read again") }
            program.kill(signal)
            // The client may end what it has begun.
            try await client.write("two\n")
            #expect(try await client.read(exactly: 4) == Array("two\n".utf8))
            client.close()
        }
        let code = try await program.end()
        #expect(code == 0, "\(program.output)")
        for word in ["Fatal", "RunLoopEnded", "CancellationError"] { #expect(!program.output.contains(word), "\(program.output)") }
    }
}
