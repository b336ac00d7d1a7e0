// `eventloop-demo ctl`: status, stop, and what it says when that is impossible.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded) struct ControlTests {
    @Test func `ctl status prints a row for each loop`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--loops", "3")
        let client = try server.connect()
        try client.greet()
        let (code, output) = try ports.run("ctl", "status")
        #expect(code == 0)
        for name in ["main ", "server-0 ", "server-1 ", "server-2 "] { #expect(output.contains("\n  " + name), "\(output)") }
        #expect(output.hasPrefix("eventloop-demo: 1 connection, "), "\(output)")
        #expect(output.split(separator: "\n").allSatisfy { $0.count <= 80 })
    }

    @Test func `ctl stop returns when the server has answered and ended`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--grace", "3600")
        let client = try server.connect()
        try client.greet()
        try client.send("slow 400\n")
        client.finish()
        let (code, output) = try ports.run("ctl", "stop", "--timeout", "3600")
        #expect(code == 0)
        #expect(output.hasPrefix("accepting no more, 1 connection open\n"), "\(output)")
        #expect(try client.answer() == "400 ms later\n")
        let end = try server.process.end()
        #expect(end.code == 0 && end.output.hasSuffix("stopped: 2 lines answered\n"), "\(end.output)")
    }

    @Test func `ctl stop gives up after its timeout, and the server goes on`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--grace", "3600")
        let client = try server.connect()
        try client.greet()
        let (code, output) = try ports.run("ctl", "stop", "--timeout", "1")
        #expect(code == 1)
        #expect(
            output.contains("eventloop-demo: eventloop-demo is still stopping after 1 second")
                || output.contains("eventloop-demo: eventloop-demo: "),
            "\(output)")
        #expect(kill(server.process.pid, 0) == 0)
        try client.greet()
    }

    @Test func `a suspended server does not answer, and stops when it goes on`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve()
        try server.process.suspend()
        let (code, output) = try ports.run("ctl", "stop", "--timeout", "0")
        #expect(code == 1 && output.split(separator: "\n").count == 1, "\(output)")
        server.process.send(SIGCONT)
        server.process.send(SIGTERM)
        #expect(try server.process.end().code == 0)
    }

    @Test func `without a server, ctl says so`() throws {
        let ports = PortDirectoryOfTest()
        for (arguments, name) in [(["ctl", "status"], "eventloop-demo"), (["ctl", "stop", "--name", "none"], "none")] {
            let (code, output) = try DemoProcess(arguments, ports: ports).end()
            #expect(code == 1)
            #expect(output == "eventloop-demo: no server is named '\(name)'; start one with: eventloop-demo serve --name '\(name)'\n")
        }
    }

    @Test func `a killed server is not found, and its name is free`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve()
        server.process.send(SIGKILL)
        #expect(try server.process.end().code == 128 + SIGKILL)
        #expect(filesIn(ports.path).contains("eventloop-demo"))
        #expect(try ports.run("ctl", "status").output.contains("no server is named"))
        _ = try ports.serve()
    }
}

#endif
