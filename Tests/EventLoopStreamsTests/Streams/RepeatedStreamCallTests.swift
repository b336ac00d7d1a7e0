// The rule of RepeatedCallTests, for the handlers of streams and servers.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import EventLoopTesting
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .serialized) struct RepeatedStreamCallTests {
    enum Handler: String, CaseIterable, Codable, Sendable { case socket, memory, replaced, room }

    @Test(arguments: Handler.allCases)
    func `a later call goes through no more functions than an earlier one, and leaves no memory behind`(handler: Handler) async {
        // No other test allocates memory in this process.
        await #expect(processExitsWith: .success) { [handler] in
            let calls = RepeatedCalls()
            try onFreshThread { loop in
                if handler == .room { try Self.makeRoom(calls, loop) } else { try Self.exchange(calls, loop, handler) }
            }
            calls.expectNoGrowth()
        }
    }

    @Test func `the tasks of a server's connections begin at the same depth, and leave no memory behind`() async {
        await #expect(processExitsWith: .success) {
            let calls = RepeatedCalls(900)
            let thread = try RunLoopThread(name: "server")
            let server = try StreamServer(listeningOn: anyPort, on: [thread.runLoop]) { _ in calls.note() }
            for _ in 0..<calls.total {
                let client = rawClient(server.localAddress)
                _ = countAll(client)
                close(client)
            }
            await server.shutdown()
            thread.stop()
            await thread.join()
            calls.expectNoGrowth()
        }
    }

    /// Two streams pass a byte to and fro.
    private static func exchange(_ calls: RepeatedCalls, _ loop: RunLoop, _ handler: Handler) throws {
        let streams: (ByteStream, ByteStream)
        if handler == .memory {
            let pair = try ByteStream.pair(on: loop)
            streams = (pair.first, pair.second)
        } else {
            let ends = connectedSockets()
            streams = (try ByteStream(adopting: ends.0, on: loop), try ByteStream(adopting: ends.1, on: loop))
        }
        @Sendable func receive(_ stream: ByteStream, _ bytes: inout ReceivedBytes) {
            calls.note()
            bytes.consume(bytes.count)
            if handler == .replaced { stream.onReceive(receive) }
            if calls.areEnough { loop.stop() } else { stream.send("x") }
        }
        streams.0.onReceive(receive)
        streams.1.onReceive { stream, bytes in
            bytes.consume(bytes.count)
            stream.send("x")
        }
        streams.1.send("x")
        _ = loop.run(for: patience)
        streams.0.close()
        streams.1.close()
    }

    /// A stream sends more than it should keep waiting whenever it has room.
    private static func makeRoom(_ calls: RepeatedCalls, _ loop: RunLoop) throws {
        var options = ByteStream.Options()
        options.lowWater = 0
        options.highWater = 20
        let pair = try ByteStream.pair(on: loop, options: options, capacity: 10)
        let bytes = [UInt8](repeating: 1, count: 100)
        pair.first.onRoom { stream in
            calls.note()
            if calls.areEnough { loop.stop() } else { stream.send(bytes) }
        }
        pair.second.onReceive { _, bytes in bytes.consume(bytes.count) }
        pair.first.send(bytes)
        _ = loop.run(for: patience)
        pair.first.close()
        pair.second.close()
    }
}
