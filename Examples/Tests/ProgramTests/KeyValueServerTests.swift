// Rules proved here, for the example key-value-server, with tasks and with handlers:
// - It answers each command of Redis's protocol in the order in which they came, however the bytes are cut.
// - Connections share the keys.
// - Bytes that are no command end the connection. SIGTERM ends the program with code 0.

#if os(Linux)

import Glibc
import TestSupport
import Testing

@Suite struct KeyValueServerTests {
    private func withServer(_ way: String, _ body: (_ server: ExampleProgram, _ path: String) throws -> Void) throws {
        try withFolder { folder in
            let path = folder + "/store"
            try body(try ExampleProgram("key-value-server", [path, way]), path)
        }
    }

    /// A command as Redis's clients send it.
    private func command(_ words: String...) -> String {
        "*\(words.count)\r\n" + words.map { "$\($0.utf8.count)\r\n\($0)\r\n" }.joined()
    }

    private func lines(_ client: Peer, _ count: Int) throws -> [String?] { try (0..<count).map { _ in try client.line() } }

    @Test(arguments: ["tasks", "handlers"]) func `commands that come together are answered in order`(way: String) throws {
        try withServer(way) { server, path in
            let client = try Peer(to: path)
            let set = command("SET", "key", "value\n2")
            try client.send(command("GET", "key") + set + command("get", "key") + command("PING") + command("INCR", "key"))
            #expect(
                try lines(client, 7) == ["$-1\r", "+OK\r", "$7\r", "value", "2\r", "+PONG\r", "-ERR GET, SET, DEL or PING?\r"])
            // Another connection sees the keys.
            let other = try Peer(to: path)
            try other.send(command("DEL", "key") + command("DEL", "key"))
            #expect(try lines(other, 2) == [":1\r", ":0\r"])
            server.end()
            #expect(server.status() == 0)
        }
    }

    @Test(arguments: ["tasks", "handlers"]) func `a command may come byte by byte`(way: String) throws {
        try withServer(way) { server, path in
            let client = try Peer(to: path)
            for byte in (command("SET", "a", "b") + command("GET", "a")).utf8 { try client.send([byte]) }
            #expect(try lines(client, 3) == ["+OK\r", "$1\r", "b\r"])
            server.end()
            #expect(server.status() == 0)
        }
    }

    @Test(arguments: ["tasks", "handlers"]) func `bytes that are no command end the connection`(way: String) throws {
        try withServer(way) { server, path in
            for wrong in ["GET key\r\n", "*1\r\nGET\r\n", "*-1\r\n", "*1\r\n$8193\r\n", "*8\r\n"] {
                let client = try Peer(to: path)
                try client.send(wrong)
                #expect(try client.line() == nil)
            }
            server.end()
            #expect(server.status() == 0)
        }
    }
}

#endif
