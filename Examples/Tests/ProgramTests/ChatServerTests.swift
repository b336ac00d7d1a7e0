// Rules proved here, for the example chat-server and the example line-client:
// - Each line goes to every member, with the sender's name. A name belongs to one member at a time.
// - A member that does not read is disconnected; the others get everything.
// - The client sends its input, finishes writing at its end, and prints everything that comes until the server ends the connection.
// - SIGTERM ends the server.

#if os(Linux)

import Glibc
import TestSupport
import Testing

@Suite struct ChatServerTests {
    /// A member that has been greeted and has heard of its own coming.
    private func member(_ name: String, at path: String, _ location: SourceLocation = #_sourceLocation) throws -> Peer {
        let peer = try Peer(to: path, location)
        #expect(try peer.line(location) == "Your name?", sourceLocation: location)
        try peer.send(name + "\n", location)
        #expect(try peer.line(location) == "* \(name) has come", sourceLocation: location)
        return peer
    }

    @Test func `everybody gets every line, and hears who comes and goes`() throws {
        try withFolder { folder in
            let path = folder + "/chat"
            let server = try ExampleProgram("chat-server", [path])
            let ann = try member("ann", at: path)
            let bob = try Peer(to: path)
            try bob.send("ann\r\n\nbob\n")
            for answer in ["Your name?", "Another name?", "Another name?", "* bob has come"] { #expect(try bob.line() == answer) }
            #expect(try ann.line() == "* bob has come")
            try bob.send("hello")
            try bob.send(", ann\n")
            for peer in [ann, bob] { #expect(try peer.line() == "bob: hello, ann") }
            bob.finishWriting()
            #expect(try bob.line() == nil)
            #expect(try ann.line() == "* bob has gone")
            // The name is free again.
            _ = try member("bob", at: path)
            server.end()
            #expect(server.status() == 0)
            #expect(!filesIn(folder).contains("chat"))
        }
    }

    @Test func `a member that does not read is disconnected, and the others get every line`() throws {
        try withFolder { folder in
            let path = folder + "/chat"
            let server = try ExampleProgram("chat-server", [path])
            let ann = try member("ann", at: path)
            let lazy = try member("lazy", at: path)
            #expect(try ann.line() == "* lazy has come")
            let line = String(repeating: "x", count: 900)
            var lazyHasGone = false
            // More than the kernel's buffers and the stream's hold.
            for _ in 0..<2_000 {
                try ann.send(line + "\n")
                // Her own line, with the news of the other one before or after it.
                var answer = try #require(try ann.line())
                if answer == "* lazy has gone" {
                    lazyHasGone = true
                    answer = try #require(try ann.line())
                }
                #expect(answer == "ann: " + line)
            }
            #expect(lazyHasGone)
            var received = 0
            while try lazy.line() != nil { received += 1 }  // ends: with the connection
            #expect(received < 2_000)
            server.end()
            #expect(server.status() == 0)
        }
    }

    @Test func `a line that is too long ends its connection`() throws {
        try withFolder { folder in
            let path = folder + "/chat"
            let server = try ExampleProgram("chat-server", [path])
            let ann = try member("ann", at: path)
            let rude = try member("rude", at: path)
            #expect(try ann.line() == "* rude has come")
            try rude.send(String(repeating: "x", count: 1_001))
            #expect(try ann.line() == "* rude has gone")
            server.end()
            #expect(server.status() == 0)
        }
    }

    @Test func `a client sends its input, and prints everything that comes`() throws {
        try withFolder { folder in
            let path = folder + "/server"
            let listener = try Listener(at: path)
            let (input, output) = (folder + "/input", folder + "/output")
            try write("one\ntwo\nthree", to: input)
            let client = try ExampleProgram("line-client", [path], input: input, output: output)
            let connection = try listener.accept()
            for line in ["one", "two", "three", nil] { #expect(try connection.line() == line) }
            // Its input has ended, and it still listens.
            let answers = (0..<10_000).map { "answer \($0)\n" }.joined()
            try connection.send(answers)
            connection.finishWriting()
            #expect(client.status() == 0)
            #expect(try text(of: output) == answers)
        }
    }

    @Test func `a client with pipes ends when the server ends`() throws {
        try withFolder { folder in
            let path = folder + "/server"
            let listener = try Listener(at: path)
            let (input, output) = (folder + "/input", folder + "/output")
            for pipe in [input, output] { try #require(mkfifo(pipe, 0o600) == 0) }
            // Open for both, so that neither side waits for the other's open.
            let (toClient, fromClient) = (Peer(open(input, O_RDWR)), Peer(open(output, O_RDWR)))
            let client = try ExampleProgram("line-client", [path], input: input, output: output)
            let connection = try listener.accept()
            _ = write(toClient.descriptor, "hello\n", 6)
            #expect(try connection.line() == "hello")
            try connection.send("welcome\n")
            #expect(try fromClient.line() == "welcome")
            connection.finishWriting()
            #expect(client.status() == 0)
        }
    }
}

#endif
