// How a server ends: it answers what its clients have sent, for at most its grace. And what its watchdog says.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded) struct ShutdownTests {
    @Test(arguments: [SIGTERM, SIGINT])
    func `a signal ends the server after its clients were answered`(signal: Int32) throws {
        let server = try PortDirectoryOfTest().serve("--grace", "3600", "--loops", "3")
        let clients = try (0..<12).map { _ in try server.connect() }
        for client in clients {
            try client.greet()
            try client.send("slow 300\n")
            client.finish()
        }
        server.process.send(signal)
        for client in clients { #expect(try client.answer() == "300 ms later\n") }
        let (code, output) = try server.process.end()
        #expect(code == 0)
        #expect(output.hasSuffix("stopped: 24 lines answered\n"), "\(output)")
    }

    @Test func `after the grace, connections are cut off and counted`() throws {
        let server = try PortDirectoryOfTest().serve("--grace", "0")
        let clients = try (0..<3).map { _ in try server.connect() }
        for client in clients { try client.greet() }
        server.process.send(SIGTERM)
        for client in clients { #expect(try client.answer().isEmpty) }
        let (code, output) = try server.process.end()
        #expect(code == 0)
        #expect(output.hasSuffix("stopped: 3 lines answered, 3 connections cut off\n"), "\(output)")
    }

    @Test func `a second SIGINT ends the server at once`() throws {
        let server = try PortDirectoryOfTest().serve("--grace", "3600")
        let client = try server.connect()
        try client.greet()
        server.process.send(SIGINT)
        #expect(try server.process.line() == "SIGINT: accepting no more, 1 connection open")
        server.process.send(SIGINT)
        #expect(try server.process.end().code == 128 + SIGINT)
    }

    @Test func `a blocked loop is reported while it is`() throws {
        let server = try PortDirectoryOfTest().serve("--loops", "1")
        let client = try server.connect()
        // Much longer than the watchdog's quarter of a second, for a busy machine.
        try client.send("stall 3000\n")
        let line = try #require(try server.process.line())
        #expect(line.hasPrefix("stall: server-0 has been in "), "\(line)")
        client.finish()
        #expect(try client.answer() == "3000 ms later\n")
    }
}

#endif
