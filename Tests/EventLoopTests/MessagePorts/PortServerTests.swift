// Rules proved here, of the serving end without a loop around it:
//  - What was served leaves nothing behind, however long the port is never idle.
//  - What clients make the port keep, bytes and descriptors, is bounded; past the bound it costs the process that has the most there.
//  - Descriptors belong to the frame that announces them; a connection with others ends.
//  - A handler that serves again, ends the port or has its own client dropped finds everything as it should be.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop

@Suite struct PortServerTests {
    private func withServer(
        descriptorLimit: Int? = nil, clock: RunLoop.ManualClock? = nil, _ body: (PortServer, String) throws -> Void
    ) throws {
        let name = freshName("server")
        let server = try PortServer(
            try PortName(name), maximumLength: 1_000, descriptorLimit: descriptorLimit, clock: { clock?.now ?? .now })
        defer {
            server.withdraw()
            server.end()
        }
        try body(server, name)
    }

    @Test(arguments: [1, 2])
    func `what was served is not kept in the list of what is ready`(clients: Int) throws {
        try withServer { server, name in
            let clients = try (0..<clients).map { _ in try RawClient(name) }
            let message = rawFrame(1, length: 0, body: [1])
            // One is served as soon as it has sent; two have always something more to serve.
            for client in clients.dropFirst() + clients.dropLast() { for _ in 0..<10 { client.send(message) } }
            for round in 0..<3_000 {
                clients[round % clients.count].send(message)
                let served = server.serve { _, _ in nil }
                #expect(served)
            }
            #expect(server.testsOnlyReadyLength <= 256)
        }
    }

    @Test func `descriptors of frames that do not end are bounded, and cost those who send them`() throws {
        let clock = RunLoop.ManualClock()
        try withServer(descriptorLimit: 128, clock: clock) { server, name in
            let pipe = Pipe()
            let hostile = try (0..<5).map { _ in try RawClient(name) }
            for client in hostile {
                sendRaw(client.descriptor, rawFrame(descriptors: 60, length: 10), [Int32](repeating: pipe.writeEnd, count: 60))
                let served = server.serve { _, _ in nil }
                #expect(!served)
                #expect(server.limits.heldDescriptors <= 128)
            }
            // Two hold what there is room for; the others, and the next, wait.
            #expect(server.limits.heldDescriptors == 120 && hostile.allSatisfy { !$0.isClosedNow })
            let honest = try RawClient(name)
            sendRaw(honest.descriptor, rawFrame(1, descriptors: 1, length: 0, body: [1]), pipe.writeEnd)
            let came = Box(0)
            for _ in 0..<100 where came.value == 0 {
                clock.advance(by: StallDetector.interval)
                _ = server.serve { _, passed in
                    came.value = passed.count
                    return nil
                }
                #expect(server.limits.heldDescriptors <= 128)
            }
            #expect(came.value == 1 && !honest.isClosedNow)
            #expect(hostile[0].isClosedNow && hostile[1].isClosedNow)
        }
    }

    @Test func `descriptors that come with a frame that announces none do not wait for the next`() throws {
        try withServer { server, name in
            let hostile = try RawClient(name)
            let pipe = Pipe()
            sendRaw(
                hostile.descriptor, rawFrame(1, length: 0, body: [1]) + rawFrame(1, length: 5), [Int32](repeating: pipe.writeEnd, count: 10)
            )
            _ = server.serve { _, _ in nil }
            #expect(hostile.isClosedNow)
        }
    }

    @Test func `a handler that serves again gets the next message, and its own reply goes where it should`() throws {
        try withServer { server, name in
            let (one, two) = (try RawClient(name), try RawClient(name))
            for client in [one, two] {
                for id in 1...3 { client.send(rawFrame(length: 0, conversation: UInt64(id), id: Int32(id), body: [1])) }
            }
            let depth = Box(0)
            func handle(_ frame: Frame) -> [UInt8]? {
                if depth.increment() < 6 { _ = server.serve { frame, _ in handle(frame) } }
                return [UInt8(frame.id)]
            }
            let served = server.serve { frame, _ in handle(frame) }
            #expect(served && depth.value == 6)
            for client in [one, two] {
                var replies = [UInt8](repeating: 0, count: 66)
                #expect(recv(client.descriptor, &replies, 66, Int32(MSG_WAITALL)) == 66)
                // The innermost comes first.
                #expect([replies[20], replies[42], replies[64]] == [3, 2, 1])
                #expect([replies[8], replies[30], replies[52]] == [3, 2, 1])
            }
        }
    }

    @Test func `a client that is dropped while its own message is handled costs nobody else`() throws {
        try withServer { server, name in
            let hostile = try RawClient(name)
            let honest = try RawClient(name)
            hostile.send(rawFrame(length: 0, body: [1]))
            let served = server.serve { _, _ in
                // Garbage, behind the request that is being handled; a nested run finds it.
                hostile.send([0, 0, 0])
                honest.send(rawFrame(length: 0, body: [1]))
                let nested = server.serve { _, _ in [2] }
                #expect(nested && hostile.isClosedNow)
                return [1]
            }
            #expect(served)
            var reply = [UInt8](repeating: 0, count: 22)
            #expect(recv(honest.descriptor, &reply, 22, Int32(MSG_WAITALL)) == 22 && reply[20] == 2)
        }
    }

    @Test func `a crowd that comes while a message is handled may drive out its sender, and nothing else happens`() throws {
        try withServer { server, name in
            let first = try RawClient(name)
            first.send(rawFrame(length: 0, body: [1]))
            let crowd = Box<[RawClient]>([])
            let served = server.serve { _, _ in
                for _ in 0..<(PortServer.connectionLimit() + 1) {
                    crowd.change { $0.append(try! RawClient(name)) }  // the port is there
                    crowd.value.last!.send(rawFrame(1, length: 0, body: [1]))
                    let nested = server.serve { _, _ in nil }
                    #expect(nested)
                }
                return [1]
            }
            #expect(served && first.isClosedNow)
            crowd.value.last!.send(rawFrame(length: 0, body: [1]))
            try waitUntil("the last client's message") { server.serve { _, _ in [3] } }
            crowd.value = []
        }
    }

    @Test func `a port that ends while a message is handled answers nobody, and takes nobody in`() throws {
        let name = freshName("server")
        let server = try PortServer(try PortName(name), maximumLength: 1_000)
        let client = try RawClient(name)
        client.send(rawFrame(length: 0, body: [1]))
        let served = server.serve { _, _ in
            server.withdraw()
            return [1]
        }
        #expect(served && client.isClosedNow)
        #expect(throws: RunLoop.PortError.notFound) { try RawClient(name) }
        server.end()
        server.end()
    }
}

#endif
