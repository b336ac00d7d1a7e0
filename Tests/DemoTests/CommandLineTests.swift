// The demo's commands, options and errors, and what `make run` shows.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded) struct CommandLineTests {
    @Test(arguments: [
        "--loops", "--loops x", "--loops 0", "--loops 65", "--seconds 0", "--bogus", "--seconds=1", "bogus", "serve --seconds 1",
        "serve extra",
        "serve --port 65536", "serve --port -1", "serve --grace -1", "serve --name", "ctl", "ctl restart", "ctl status stop",
        "ctl status --port 1", "ctl stop --timeout soon",
    ])
    func `a wrong command line ends with code 2 and one line`(arguments: String) throws {
        let ports = PortDirectoryOfTest()
        let (code, output) = try DemoProcess(arguments.split(separator: " ").map(String.init), ports: ports).end()
        #expect(code == 2)
        #expect(output.hasPrefix("eventloop-demo: ") && output.split(separator: "\n").count == 1, "\(output)")
    }

    @Test func `the help names every command and every option`() throws {
        let ports = PortDirectoryOfTest()
        for argument in ["--help", "-h", "help"] {
            let (code, output) = try ports.run(argument)
            #expect(code == 0)
            for word in [
                "serve", "ctl status", "ctl stop", "--port", "--loops", "--seconds", "--grace", "--name", "--timeout", "--timeline",
            ] {
                #expect(output.contains(word), "\(argument): \(word)")
            }
            #expect(output.split(separator: "\n").allSatisfy { $0.count <= 80 })
        }
    }

    @Test func `the show ends by itself, receives every answer, and leaves a page with each loop`() throws {
        let ports = PortDirectoryOfTest()
        let (code, output) = try ports.run("--seconds", "1", "--timeline", ports.path + "/timeline.html")
        #expect(code == 0, "\(output)")
        #expect(output.contains("\n  \(ports.path)/timeline.html\n"), "\(output)")
        #expect(output.split(separator: "\n").allSatisfy { $0.count <= 80 || $0.contains("/timeline.html") }, "\(output)")
        let page = open(ports.path + "/timeline.html", O_RDONLY | O_CLOEXEC)
        defer { close(page) }
        let text = try readToEnd(page, "the timeline")
        #expect(text.hasPrefix("<!doctype html>") && text.contains("\"name\":\"server-1\""))
        let numbers = output.split(separator: "\n").first { $0.contains(" received. ") }?.split(separator: " ") ?? []
        #expect(numbers.count > 2 && numbers[0] == numbers[2] && numbers[0] != "0", "\(output)")
    }

    @Test func `a timeline that cannot be written is said`() throws {
        let ports = PortDirectoryOfTest()
        let (code, output) = try ports.run("--seconds", "1", "--timeline", ports.path + "/no/such/folder")
        #expect(code == 1 && output.hasSuffix("/no/such/folder: No such file or directory\n"), "\(output)")
    }

    @Test func `a port in use is reported in one line`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve()
        let (code, output) = try ports.run("serve", "--port", "\(server.port)", "--name", "second")
        #expect(code == 1)
        #expect(output.hasPrefix("eventloop-demo: ") && output.contains("EADDRINUSE"), "\(output)")
        #expect(output.split(separator: "\n").count == 1, "\(output)")
    }

    @Test func `a name in use is reported in one line`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--name", "first")
        let (code, output) = try ports.run("serve", "--port", "0", "--name", "first")
        #expect(code == 1)
        #expect(output.hasPrefix("eventloop-demo: ") && output.split(separator: "\n").count == 1, "\(output)")
        server.process.send(SIGTERM)
        #expect(try server.process.end().code == 0)
    }
}

#endif
