// The demo's commands, options and errors.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded) struct CommandLineTests {
    @Test(arguments: [
        "--port", "--port x", "--port 65536", "--port -1", "--loops 0", "--loops 65", "--seconds 0", "--bogus", "--forever=1", "bogus",
        "serve --seconds 1", "serve extra", "serve --drain -1", "serve --name", "ctl", "ctl restart", "ctl status stop",
        "ctl status --port 1",
        "ctl stop --timeout soon", "ctl status --name=",
    ])
    func `a wrong command line ends with code 2 and one line`(arguments: String) throws {
        let ports = PortDirectoryOfTest()
        let (code, output) = try DemoProcess(arguments.split(separator: " ").map(String.init), ports: ports).end()
        #expect(code == 2)
        #expect(output.hasPrefix("eventloop-demo: ") && output.split(separator: "\n").count == 1, "\(output)")
    }

    @Test func `the help names every command and every option`() throws {
        let ports = PortDirectoryOfTest()
        for arguments in [["--help"], ["-h"], ["help"], ["serve", "--help"], ["ctl", "-h"]] {
            let (code, output) = try DemoProcess(arguments, ports: ports).end()
            #expect(code == 0)
            for word in [
                "serve", "ctl status", "ctl stop", "--port", "--loops", "--seconds", "--forever", "--drain", "--name", "--timeout",
                "--timeline", "--help",
            ] {
                #expect(output.contains(word), "\(arguments): \(word)")
            }
            #expect(output.split(separator: "\n").allSatisfy { $0.count <= 80 })
        }
    }

    @Test func `the drive ends by itself, and receives an answer to every request`() throws {
        let ports = PortDirectoryOfTest()
        let (code, output) = try ports.run("--seconds", "1", "--timeline", ports.path + "/timeline.html")
        #expect(code == 0, "\(output)")
        #expect(output.contains("\n  \(ports.path)/timeline.html\n"), "\(output)")
        let page = open(ports.path + "/timeline.html", O_RDONLY | O_CLOEXEC)
        defer { close(page) }
        let text = try readToEnd(page, "the timeline")
        #expect(text.hasPrefix("<!doctype html>") && text.contains("http-1"))
        func number(after word: String) -> Substring? {
            output.split(separator: "\n").last { $0.hasPrefix("  \(word) ") }?.split(separator: " ").dropFirst().first
        }
        #expect(number(after: "answered") != nil)
        #expect(number(after: "answered") == number(after: "received"), "\(output)")
    }

    @Test func `a timeline that cannot be written is said, and is no failure`() throws {
        let ports = PortDirectoryOfTest()
        let (code, output) = try ports.run("--seconds", "1", "--timeline", ports.path + "/no/such/folder")
        #expect(code == 0 && output.contains("The timeline could not be written"), "\(output)")
    }

    @Test func `a port in use is reported in one line`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve()
        let (code, output) = try ports.run("serve", "--port", "\(server.port)")
        #expect(code == 1)
        #expect(output.hasPrefix("eventloop-demo: port \(server.port) is in use") && output.split(separator: "\n").count == 1, "\(output)")
    }

    @Test func `a name in use is reported in one line, and the port is free again`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--name", "first")
        let (code, output) = try ports.run("serve", "--port", "0", "--name", "first")
        #expect(code == 1)
        #expect(output == "eventloop-demo: the name 'first' is in use by another server; pick another with --name\n")
        server.process.send(15)
        #expect(try server.process.end().code == 0)
    }
}

#endif
