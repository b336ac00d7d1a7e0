// Starts the programs of README.md and docs/getting-started.md, and checks that they do what the pages say.

#if os(Linux)

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded) struct ProgramTests {
    @Test func `the first program prints ticks until its run times out`() throws {
        let (code, lines) = try DocumentedProgram("eventloop-documented-timer").end()
        #expect(code == 0 && lines.last == "timedOut")
        // A busy machine may miss dates.
        #expect((1...3).contains(lines.count - 1) && lines.dropLast().allSatisfy { $0 == "tick" })
    }

    @Test func `top-level code waits for room in a port, for a thread and for a group`() throws {
        let (code, lines) = try DocumentedProgram("eventloop-documented-top-level").end()
        #expect(code == 0 && lines == ["sent", "joined: true", "the group has ended"], "\(lines)")
    }

    @Test func `the server answers, and after SIGTERM it ends with exit code 0`() async throws {
        try await withServer { server, connect in
            let client = try await connect()
            try await client.write("hello\nworld\n")
            var answers = client.lines().makeAsyncIterator()
            #expect(try await answers.next() == "you said hello")
            #expect(try await answers.next() == "you said world")
            client.close()
            server.send(SIGTERM)
            let (code, lines) = try server.end()
            #expect(code == 0 && lines.last == "stopped", "\(lines)")
        }
    }

    @Test func `the server of the readme answers, and after SIGTERM it ends with exit code 0`() async throws {
        try await withServer("eventloop-documented-echo") { server, connect in
            let client = try await connect()
            try await client.write("hello\n")
            var answers = client.lines().makeAsyncIterator()
            #expect(try await answers.next() == "you said hello")
            client.close()
            server.send(SIGTERM)
            #expect(try server.end().code == 0)
        }
    }

    @Test(arguments: [SIGTERM, SIGINT])
    func `a server that stops lets a client finish, and listens no more`(signal: Int32) async throws {
        try await withServer { server, connect in
            let client = try await connect()
            try await client.write("one\n")
            var answers = client.lines().makeAsyncIterator()
            #expect(try await answers.next() == "you said one")
            server.send(signal)
            try await suspendUntil("the server refuses connections") {
                guard let other = try? await connect() else { return true }
                other.close()
                return false
            }
            try await client.write("two\n")
            #expect(try await answers.next() == "you said two")
            try await client.finishWriting()
            #expect(try await answers.next() == nil)
            let (code, lines) = try server.end()
            #expect(code == 0 && lines.last == "stopped", "\(lines)")
        }
    }

    @Test func `a second SIGTERM ends the server at once`() async throws {
        try await withServer { server, connect in
            let client = try await connect()
            defer { client.close() }
            server.send(SIGTERM)
            try await suspendUntil("the server refuses connections") {
                guard let other = try? await connect() else { return true }
                other.close()
                return false
            }
            server.send(SIGTERM)
            #expect(try server.end().code == 128 + SIGTERM)
        }
    }

    /// Starts the server on a free port.
    private func withServer(
        _ program: String = "eventloop-documented-server",
        _ body: (DocumentedProgram, _ connect: () async throws -> ByteStream) async throws -> Void
    ) async throws {
        let server = DocumentedProgram(program, "0")
        let first = try #require(try server.line())
        let port = try #require(first.split(separator: ":").last.flatMap { UInt16($0) }, "\(first)")
        let thread = try RunLoopThread(name: "clients")
        try await body(server) { try await ByteStream.connect(to: .ipv4(host: "127.0.0.1", port: port), on: thread.runLoop) }
        thread.stop()
        _ = await thread.join(timeout: patience)
    }
}

#endif
