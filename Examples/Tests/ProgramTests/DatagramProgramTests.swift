// Rules proved here, for the examples statsd-sink and dns-forwarder:
// - The sink adds up counters, whatever comes in between, and counts what it does not know.
// - The forwarder answers each client with its own number, asks once for what it has in its cache or is asking already, and ages what it keeps.
// - Malformed messages, answers to other questions and foreign numbers change nothing.

#if os(Linux)

import EventLoop
import EventLoopDatagrams
import Glibc
import TestSupport
import Testing

@Suite(.bounded) struct DatagramProgramTests {
    /// The program, and the port that it listens on. `body` gets a loop for its sockets.
    private func withProgram(
        _ name: String, _ arguments: [String], _ body: (ExampleProgram, RunLoop.SocketAddress, RunLoop) async throws -> Void
    ) async throws -> String {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let thread = try RunLoopThread(name: "test")
        let program = try ExampleProgram(name, arguments, output: folder + "/output")
        try await suspendUntil("the program listens") {
            guard access(folder + "/output", R_OK) == 0 else { return false }
            return try text(of: folder + "/output").contains("\n")
        }
        let port = try #require(try text(of: folder + "/output").split(separator: "127.0.0.1:").last?.prefix { $0.isNumber })
        try await body(program, .ipv4(host: "127.0.0.1", port: try #require(UInt16(port))), thread.runLoop)
        program.end()
        #expect(program.status() == 0)
        thread.stop()
        await thread.join()
        return try text(of: folder + "/output")
    }

    @Test func `the sink adds up counters`() async throws {
        let output = try await withProgram("statsd-sink", ["0"]) { program, address, loop in
            let socket = try DatagramSocket(connectedTo: address, on: loop)
            for line in ["requests:1|c", "requests:41|c|@0.1\nerrors:-2|c", "load:3|g", "nonsense", ":|c", "\u{0}", "a:b:7|c"] {
                try await socket.write(Array(line.utf8))
            }
            // The kernel keeps their order, and the sink takes what is there before a signal.
            try await suspendUntil("all are sent") { socket.statistics.sent == 7 }
        }
        #expect(output.contains("requests 42\n") && output.contains("errors -2\n") && output.contains("a:b 7\n"), "\(output)")
        #expect(output.contains("received 7, lost 0, unknown 4"), "\(output)")
    }

    /// A question for the name, and its answer with a lifetime.
    private func question(_ name: String, id: UInt16) -> [UInt8] {
        let labels = name.split(separator: ".").flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) }
        return [UInt8(id >> 8), UInt8(id & 255), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0] + labels + [0, 0, 1, 0, 1]
    }

    private func answer(_ question: [UInt8], lifetime: UInt8, _ last: UInt8) -> [UInt8] {
        var answer = question
        (answer[2], answer[3], answer[7]) = (0x81, 0x80, 1)
        return answer + [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, lifetime, 0, 4, 10, 0, 0, last]
    }

    @Test func `the forwarder asks once, and answers each client with its own number`() async throws {
        let servers = try RunLoopThread(name: "server")
        let questions = Box<[[UInt8]]>([])
        let server = try DatagramSocket(boundTo: .ipv4(host: "127.0.0.1", port: 0), on: servers.runLoop)
        server.onReceive { [self] server, datagram in
            questions.change { $0.append(datagram.bytes) }
            var other = answer(question("other.example", id: 0), lifetime: 60, 9)
            (other[0], other[1]) = (datagram.bytes[0], datagram.bytes[1])
            // Another question, a foreign number, rubbish, and then the answer.
            server.send(other, to: datagram.peer)
            var foreign = answer(datagram.bytes, lifetime: 60, 8)
            foreign[0] ^= 0xFF
            server.send(foreign, to: datagram.peer)
            server.send([1, 2, 3], to: datagram.peer)
            let isShort = String(decoding: datagram.bytes, as: UTF8.self).contains("short")
            server.send(answer(datagram.bytes, lifetime: isShort ? 0 : 60, 7), to: datagram.peer)
        }
        guard case .ipv4(_, let port) = server.localAddress else { throw SystemFailure("no port") }
        let output = try await withProgram("dns-forwarder", ["127.0.0.1", "\(port)"]) { program, address, loop in
            let client = try DatagramSocket(connectedTo: address, on: loop)
            var answers = client.datagrams.makeAsyncIterator()
            for rubbish in [[], [0], [UInt8](repeating: 0xFF, count: 100), Array(question("a.example", id: 1).dropLast())] {
                try await client.write(rubbish)
            }
            for id in 1...3 as ClosedRange<UInt16> {
                // The name's letters do not matter.
                try await client.write(question(id == 2 ? "WWW.Example" : "www.example", id: id))
                let datagram = try #require(try await answers.next())
                #expect(datagram.bytes.prefix(2) == [0, UInt8(id)] && datagram.bytes.last == 7)
            }
            #expect(questions.value.count == 1)
            for id in 4...5 as ClosedRange<UInt16> {
                try await client.write(question("short.example", id: id))
                let datagram = try #require(try await answers.next())
                #expect(datagram.bytes.prefix(2) == [0, UInt8(id)])
            }
            #expect(questions.value.count == 3, "what lives no second is not kept")
        }
        #expect(output.contains("asked 5, answered from the cache 2"), "\(output)")
        server.close()
        servers.stop()
        await servers.join()
    }
}
#endif
