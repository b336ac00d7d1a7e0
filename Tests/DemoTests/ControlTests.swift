// `eventloop-demo ctl`: status, stop, and what it says when that is impossible.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded) struct ControlTests {
    @Test func `ctl status prints a row for each loop`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--loops", "3")
        let (code, output) = try ports.run("ctl", "status")
        #expect(code == 0)
        for name in ["main ", "http-0 ", "http-1 ", "http-2 "] { #expect(output.contains("\n" + name), "\(output)") }
        #expect(output.contains(":\(server.port)/") && output.contains("serving"))
        #expect(output.split(separator: "\n").allSatisfy { $0.count <= 80 })
    }

    @Test func `ctl stop returns when the server has answered everything and ended`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--drain", "3600")
        let client = try server.connect()
        try client.get("/slow?ms=400")
        try server.waitUntilRead(1)
        let (code, output) = try ports.run("ctl", "stop", "--timeout", "3600")
        #expect(code == 0)
        #expect(output.contains("all answered"), "\(output)")
        #expect(try client.answer().contains("400 ms later"))
        #expect(try server.process.end().code == 0)
    }

    @Test func `two may stop a server at the same time`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--drain", "3600")
        let client = try server.connect()
        try client.get("/slow?ms=60000")
        try server.waitUntilRead(1)
        let both = [ports.start("ctl", "stop", "--timeout", "3600"), ports.start("ctl", "stop", "--timeout", "3600")]
        for ctl in both { #expect(try ctl.line()?.contains("is stopping") == true) }
        server.process.send(SIGKILL)
        for ctl in both {
            let (code, output) = try ctl.end()
            #expect(code == 1)
            #expect(output == "eventloop-demo: \(server.name) ended without saying that it was done\n")
        }
    }

    @Test func `ctl stop gives up after its timeout, and the server goes on`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--drain", "3600")
        let client = try server.connect()
        try client.get("/slow?ms=60000")
        try server.waitUntilRead(1)
        let (code, output) = try ports.run("ctl", "stop", "--timeout", "1")
        #expect(code == 1)
        #expect(
            output.contains("eventloop-demo: \(server.name) is still stopping after 1 second") || output.contains("within 1 second"),
            "\(output)")
        #expect(kill(server.process.pid, 0) == 0)
    }

    @Test func `a suspended server does not answer, and stops when it goes on`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve()
        try server.process.suspend()
        let status = try ports.run("ctl", "status", "--timeout", "0")
        #expect(status.code == 1 && status.output.contains("does not answer within 0 seconds"), "\(status.output)")
        let stop = try ports.run("ctl", "stop", "--timeout", "0")
        #expect(stop.code == 1 && stop.output.contains("It has the request, and ends when it goes on"), "\(stop.output)")
        server.process.send(SIGCONT)
        #expect(try server.process.end().code == 0)
    }

    @Test func `a limit that cuts requests off fails ctl stop as well`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--drain", "0")
        let client = try server.connect()
        try client.get("/slow?ms=60000")
        try server.waitUntilRead(1)
        let (code, output) = try ports.run("ctl", "stop", "--timeout", "3600")
        #expect(code == 1)
        #expect(output.contains("1 request got no answer"), "\(output)")
        #expect(try server.process.end().code == 1)
    }

    @Test func `without a server, ctl says so`() throws {
        let ports = PortDirectoryOfTest()
        for (arguments, sentence) in [
            (["ctl", "status"], "no server is running"), (["ctl", "stop"], "no server is running"),
            (["ctl", "stop", "--name", "none"], "no server is named 'none'"),
        ] {
            let (code, output) = try DemoProcess(arguments, ports: ports).end()
            #expect(code == 1)
            #expect(output.hasPrefix("eventloop-demo: \(sentence)") && output.split(separator: "\n").count == 1, "\(output)")
        }
    }

    @Test func `of several servers, ctl wants one by name`() throws {
        let ports = PortDirectoryOfTest()
        let servers = [try ports.serve(), try ports.serve()]
        let (code, output) = try ports.run("ctl", "stop")
        #expect(code == 1)
        for server in servers { #expect(output.contains("--name \(server.name)"), "\(output)") }
        #expect(try ports.run("ctl", "stop", "--name", servers[0].name).code == 0)
        #expect(try servers[0].process.end().code == 0)
        // Only one is left, so it needs no name.
        #expect(try ports.run("ctl", "status").output.contains(":\(servers[1].port)/"))
    }

    @Test func `a killed server is not found, and its name is free`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--name", "eventloop-demo-1")
        server.process.send(SIGKILL)
        #expect(try server.process.end().code == 128 + SIGKILL)
        #expect(filesIn(ports.path).contains("eventloop-demo-1"))
        #expect(try ports.run("ctl", "status").output.contains("no server is running"))
        _ = try ports.serve("--name", "eventloop-demo-1")
    }
}

#endif
