// Rules proved here, for the example actor-per-loop:
// - The connections are spread over the loops, and the keys over the actors. Every connection reaches every key.
// - A connection's answers come in the order of its commands.
// - SIGTERM lets clients finish, accepts no others, and ends the program with code 0. When the grace is over, it closes what is left.

#if os(Linux)

import Glibc
import TestSupport
import Testing

@Suite struct ActorPerLoopTests {
    private func withServer(grace: Int = 0, _ body: (_ server: ExampleProgram, _ path: String) throws -> Void) throws {
        try withFolder { folder in
            let path = folder + "/store"
            try body(try ExampleProgram("actor-per-loop", [path, "3", "\(grace)"]), path)
        }
    }

    /// What the server answers to these commands, which are sent together.
    private func answers(_ client: Peer, _ commands: [String], _ location: SourceLocation = #_sourceLocation) throws -> [String?] {
        try client.send(commands.map { $0 + "\n" }.joined(), location)
        return try commands.map { _ in try client.line(location) }
    }

    @Test func `connections on all loops reach the keys of all actors`() throws {
        try withServer { server, path in
            let clients = try (0..<6).map { _ in try Peer(to: path) }
            #expect(try clients.map { try $0.line() } == [1, 2, 3, 1, 2, 3].map { "loop \($0) of 3" })
            // Each client sets keys, and the next one reads them.
            for (number, client) in clients.enumerated() {
                let keys = (0..<50).map { "\(number)-\($0)" }
                #expect(try answers(client, keys.map { "SET \($0) the value of \($0)" }) == keys.map { _ in "OK" })
                #expect(try answers(clients[(number + 1) % 6], keys.map { "GET \($0)" }) == keys.map { "the value of \($0)" })
            }
            // 300 keys, and a part of them with each actor.
            let count = try #require(try answers(clients[0], ["COUNT"])[0]).split { " =+".contains($0) }.compactMap { Int($0) }
            #expect(count.count == 4 && count[0] == 300 && count[1...].reduce(0, +) == 300 && !count.contains(0), "\(count)")
            server.end()
            #expect(server.status() == 0)
        }
    }

    @Test func `answers come in the order of the commands`() throws {
        try withServer { server, path in
            let client = try Peer(to: path)
            _ = try client.line()
            let commands = (0..<300).flatMap { ["SET key \($0)", "GET key", "SET key-\($0) \($0)", "GET key-\($0)"] }
            #expect(try answers(client, commands) == (0..<300).flatMap { ["OK", "\($0)", "OK", "\($0)"] })
            let help = "GET KEY, SET KEY VALUE, or COUNT?"
            #expect(try answers(client, ["GET nothing", "SET key", "get key", "", "GET key"]) == ["NONE", help, help, help, "299"])
            server.end()
            #expect(server.status() == 0)
        }
    }

    @Test func `SIGTERM lets a client finish, and accepts no other`() throws {
        try withServer(grace: 3_600) { server, path in
            let client = try Peer(to: path)
            _ = try client.line()
            server.end()
            try waitUntil("the server does not listen any more") { access(path, F_OK) != 0 }
            #expect(try answers(client, ["SET key value", "GET key", "COUNT"]).prefix(2) == ["OK", "value"])
            client.finishWriting()
            #expect(try client.line() == nil)
            #expect(server.status() == 0)
        }
    }

    @Test func `a client that stays is disconnected when the grace is over`() throws {
        try withServer { server, path in
            let client = try Peer(to: path)
            _ = try client.line()
            server.end()
            #expect(try client.line() == nil)
            #expect(server.status() == 0)
        }
    }
}

#endif
