// How a server ends: it answers what it has read, for at most its limit.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded) struct ShutdownTests {
    @Test(arguments: [SIGTERM, SIGINT])
    func `a signal ends the server after the requests in progress were answered`(signal: Int32) throws {
        let server = try PortDirectoryOfTest().serve("--drain", "3600", "--loops", "3")
        let clients = try (0..<12).map { _ in try server.connect() }
        for client in clients { try client.get("/slow?ms=300") }
        try server.waitUntilRead(12)
        server.process.send(signal)
        for client in clients { #expect(try client.answer().contains("300 ms later")) }
        let (code, output) = try server.process.end()
        #expect(code == 0)
        #expect(output.contains("all answered"), "\(output)")
    }

    @Test func `at the limit, requests in progress are abandoned and counted`() throws {
        let server = try PortDirectoryOfTest().serve("--drain", "0")
        let clients = try (0..<3).map { _ in try server.connect() }
        for client in clients { try client.get("/slow?ms=60000") }
        try server.waitUntilRead(3)
        server.process.send(SIGTERM)
        for client in clients { #expect(try client.answer().isEmpty) }
        let (code, output) = try server.process.end()
        #expect(code == 1)
        #expect(output.hasSuffix("eventloop-demo: stopped: 3 requests got no answer within 0 seconds\n"), "\(output)")
    }

    @Test func `connections without a whole request do not delay the end`() throws {
        let server = try PortDirectoryOfTest().serve("--drain", "3600")
        let clients = try (0..<6).map { _ in try server.connect() }
        for client in clients.prefix(3) { try client.send("GET / HTTP/1.1\r\nHost: loc") }
        try server.waitUntilAccepted(6)
        server.process.send(SIGTERM)
        #expect(try server.process.end().code == 0)
        for client in clients { #expect(try client.answer().isEmpty) }
    }

    @Test func `a client that disconnects before its answer does not delay the end`() throws {
        let server = try PortDirectoryOfTest().serve("--drain", "3600")
        do {
            let client = try server.connect()
            try client.get("/slow?ms=300")
            try server.waitUntilRead(1)
        }
        server.process.send(SIGTERM)
        #expect(try server.process.end().code == 0)
    }

    @Test func `a second SIGINT ends the server at once`() throws {
        let server = try PortDirectoryOfTest().serve("--drain", "3600")
        let client = try server.connect()
        try client.get("/slow?ms=60000")
        try server.waitUntilRead(1)
        server.process.send(SIGINT)
        let line = try server.process.line()
        #expect(line?.hasPrefix("SIGINT: accepting no more connections") == true, "\(line ?? "nothing")")
        // For a moment, another one is taken for the same.
        try waitUntil("a further SIGINT ends the server") {
            server.process.send(SIGINT)
            return server.process.hasEnded
        }
        #expect(try server.process.end().code == 128 + SIGINT)
    }

    @Test func `a signal that arrives twice ends the server in order`() throws {
        let server = try PortDirectoryOfTest().serve("--drain", "3600")
        let client = try server.connect()
        try client.get("/slow?ms=300")
        try server.waitUntilRead(1)
        for signal in [SIGTERM, SIGTERM, SIGTERM] { server.process.send(signal) }
        #expect(try client.answer().contains("300 ms later"))
        #expect(try server.process.end().code == 0)
    }
}

#endif
