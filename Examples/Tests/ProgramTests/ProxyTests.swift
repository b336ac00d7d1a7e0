// Rules proved here, for the example tcp-proxy:
// - Bytes pass in both directions, and the end of one does not end the other.
// - A server that does not read makes the client wait. Nothing is lost.
// - A connection that breaks on one side ends on the other.

#if os(Linux)

import Glibc
import TestSupport
import Testing

@Suite struct ProxyTests {
    private func withProxy(_ body: (_ client: Peer, _ server: Peer) throws -> Void) throws {
        try withFolder { folder in
            let listener = try Listener(at: folder + "/server")
            let proxy = try ExampleProgram("tcp-proxy", [folder + "/proxy", folder + "/server"])
            let client = try Peer(to: folder + "/proxy")
            try body(client, try listener.accept())
            proxy.end()
            #expect(proxy.status() == 0)
        }
    }

    @Test func `the end of one direction does not end the other`() throws {
        try withProxy { client, server in
            try client.send("question\nlast line\n")
            client.finishWriting()
            for line in ["question", "last line", nil] { #expect(try server.line() == line) }
            try server.send("answer\n")
            #expect(try client.line() == "answer")
            server.finishWriting()
            #expect(try client.line() == nil)
        }
    }

    @Test func `a server that does not read makes the client wait, and then gets every byte`() throws {
        try withProxy { client, server in
            let bytes = (0..<4_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
            let sent = try client.sendUntilFull(bytes)
            // Two sockets' buffers and the proxy's own, far less than everything.
            #expect(sent < 2_000_000)
            client.finishWriting()
            #expect(try server.readToTheEnd(bytes) == sent)
            server.finishWriting()
            #expect(try client.line() == nil)
        }
    }

    @Test func `a server that takes no more ends the connection, although it may still send`() throws {
        try withProxy { client, server in
            shutdown(server.descriptor, Int32(SHUT_RD))
            try client.send("question\n")
            #expect(try client.line() == nil)
        }
    }

    @Test func `when one side breaks, the other one ends`() throws {
        try withFolder { folder in
            let proxy = try ExampleProgram("tcp-proxy", [folder + "/proxy", folder + "/server"])
            // Nobody listens at the server's place.
            #expect(try Peer(to: folder + "/proxy").line() == nil)
            proxy.end()
            #expect(proxy.status() == 0)
        }
    }
}

#endif
