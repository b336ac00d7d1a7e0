// Rules proved here, of the serving end without a loop:
//  - Served messages leave nothing behind, even if the port is never idle.
//  - The bytes and descriptors that clients make the port hold are bounded. Above the limit, the process that holds the most loses a
//    connection.
//  - Descriptors belong to the frame that announces them. A connection with others is closed.
//  - A handler may serve the port again, end it, or cause its own client to be dropped.
//  - A thread that is cancelled serves a message to the end.
//  - A child that the handler forks sends no reply.

#if os(Linux)

import CLibevent
import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

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

@Suite(.tags(.threads)) struct PortServerTests {
    @Test(arguments: [1, 2])
    func `served connections do not accumulate in the ready list`(clients: Int) throws {
        try withServer { server, name in
            let clients = try (0..<clients).map { _ in try RawClient(name) }
            let message = rawFrame(1, length: 0, body: [1])
            // A single client is served as soon as it has sent. With two, there is always more to serve.
            for client in clients.dropFirst() + clients.dropLast() { for _ in 0..<10 { client.send(message) } }
            for round in 0..<3_000 {
                clients[round % clients.count].send(message)
                let served = server.serve { _, _ in nil }
                #expect(served)
            }
            #expect(server.testsOnlyReadyLength <= 256)
        }
    }

    @Test func `descriptors of incomplete frames are bounded, and their senders lose their connections`() async {
        // In a process of its own: descriptors of other tests that wait to be closed would count too.
        await #expect(processExitsWith: .success) {
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
                // Two clients reach the limit. The others and the next one wait.
                #expect(server.limits.heldDescriptors == 120 && hostile.allSatisfy { !$0.isClosedNow })
                let honest = try RawClient(name)
                sendRaw(honest.descriptor, rawFrame(1, descriptors: 1, length: 0, body: [1]), pipe.writeEnd)
                let received = Box(0)
                for _ in 0..<100 where received.value == 0 {
                    try waitForCloser()
                    clock.advance(by: StallDetector.interval)
                    _ = server.serve { _, passed in
                        received.value = passed.count
                        return nil
                    }
                    #expect(server.limits.heldDescriptors <= 128)
                }
                #expect(received.value == 1 && !honest.isClosedNow)
                #expect(hostile[0].isClosedNow && hostile[1].isClosedNow)
            }
        }
    }

    @Test func `descriptors with a frame that announces none do not wait for the next frame`() throws {
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

    @Test func `a handler that serves again gets the next message, and each reply goes to its own request`() throws {
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
                // The innermost handler replies first.
                #expect([replies[20], replies[42], replies[64]] == [3, 2, 1])
                #expect([replies[8], replies[30], replies[52]] == [3, 2, 1])
            }
        }
    }

    @Test func `a client that is dropped while its message is handled affects no other client`() throws {
        try withServer { server, name in
            let hostile = try RawClient(name)
            let honest = try RawClient(name)
            hostile.send(rawFrame(length: 0, body: [1]))
            let served = server.serve { _, _ in
                // Garbage behind the request that is being handled, which the nested call reads.
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

    @Test func `connections that arrive while a message is handled may evict its sender`() async {
        // In a process of its own, because it has a thousand descriptors: other tests rely on high numbers that nobody takes.
        await #expect(processExitsWith: .success) {
            try withServer { server, name in
                let first = try RawClient(name)
                first.send(rawFrame(length: 0, body: [1]))
                let clients = Box<[RawClient]>([])
                let served = server.serve { _, _ in
                    for _ in 0..<(PortServer.connectionLimit() + 1) {
                        clients.change { $0.append(try! RawClient(name)) }  // the port is valid
                        clients.value.last!.send(rawFrame(1, length: 0, body: [1]))
                        let nested = server.serve { _, _ in nil }
                        #expect(nested)
                    }
                    return [1]
                }
                #expect(served && first.isClosedNow)
                clients.value.last!.send(rawFrame(length: 0, body: [1]))
                try waitUntil("the last client's message") { server.serve { _, _ in [3] } }
                clients.value = []
            }
        }
    }

    @Test func `a port without free descriptors evicts nobody if no further client waits`() async {
        // In a separate process, because it uses up all descriptors.
        await #expect(processExitsWith: .success) {
            let name = freshName("server")
            let server = try PortServer(try PortName(name), maximumLength: 1_000)
            var clients = try (0..<2).map { _ in try RawClient(name) }
            _ = server.serve { _, _ in nil }
            clients.append(try RawClient(name))
            // The last client takes the only number. On Linux, accept(2) then fails with EMFILE even if its queue is empty.
            withoutFreeDescriptors(but: 1) { _ = server.serve { _, _ in nil } }
            exit(clients.allSatisfy { !$0.isClosedNow } ? 0 : 1)
        }
    }

    @Test func `a port that ends while a message is handled sends no reply and accepts nobody`() throws {
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

    @Test func `a port that ends before or while its name is given back affects no socket that reuses a number of its own`() async {
        // In a process of its own: numbers are reused at once, and the lock of the directory is held.
        await #expect(processExitsWith: .success) {
            for endsFirst in [true, false] {
                let server = try PortServer(try PortName(freshName("server")), maximumLength: 1_000)
                let directory = try PortDirectory(PortDirectory.Candidate(path: portDirectory, parentIsOurs: false), making: false)
                var lock: PortDirectory.Lock?
                var withdrawing: JoinableThread<Void>?
                if !endsFirst {
                    lock = try directory.lock()
                    withdrawing = plainThread { server.withdraw() }
                    try waitUntil("the port gives its name back") { server.acceptor.testsOnlyIsWithdrawn }
                }
                server.end()
                try waitUntil("what has ended is closed") { DescriptorCloser.pending == 0 }
                let pairs = (0..<20).map { _ in SocketPair() }
                withExtendedLifetime(lock) {}
                lock = nil
                if endsFirst { server.withdraw() } else { try withdrawing?.join() }
                var byte: UInt8 = 0
                let areOpen = pairs.allSatisfy { recv($0.far, &byte, 1, Int32(MSG_DONTWAIT)) == -1 && errno == EAGAIN }
                #expect(areOpen)
                try waitUntil("the listener is closed") { DescriptorCloser.pending == 0 }
            }
        }
    }

    @Test func `a thread that is cancelled serves a message and ends the port to the end`() async {
        // In a process of its own, because the thread would end in the middle of a system call.
        await #expect(processExitsWith: .success) {
            let name = freshName("server")
            let server = try PortServer(try PortName(name), maximumLength: 1_000)
            let client = try RawClient(name)
            client.send(rawFrame(length: 0, body: [1]))
            let cancelled = plainThread {
                pthread_cancel(pthread_self())
                let isServed = server.serve { _, _ in [7] }
                server.withdraw()
                server.end()
                // So that the thread ends in the usual way.
                pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                return isServed
            }
            #expect(try cancelled.join())
            var reply = [UInt8](repeating: 0, count: 22)
            #expect(recv(client.descriptor, &reply, 22, Int32(MSG_WAITALL)) == 22 && reply[20] == 7)
            #expect(client.isClosedByPort())
        }
    }

    @Test func `a child that returns from the handler that forked it does not answer for its parent`() async {
        await #expect(processExitsWith: .success) {
            let name = freshName("server")
            let server = try PortServer(try PortName(name), maximumLength: 1_000)
            let client = try RawClient(name)
            client.send(rawFrame(length: 0, body: [1]))
            var (child, status) = (Int32(-1), Int32(-1))
            let isServed = server.serve { _, _ in
                child = systemFork()
                if child == 0 {
                    killLater()
                    return [8]
                }
                // The child is the first to return.
                while waitpid(child, &status, 0) < 0 && errno == EINTR {}
                return [7]
            }
            if child == 0 { _exit(0) }
            #expect(isServed && status == 0)
            var reply = [UInt8](repeating: 0, count: 22)
            #expect(recv(client.descriptor, &reply, 22, Int32(MSG_WAITALL)) == 22 && reply[20] == 7)
            #expect(recv(client.descriptor, &reply, 22, Int32(MSG_DONTWAIT)) == -1 && errno == EAGAIN)
            server.withdraw()
            server.end()
        }
    }

    @Test func `a client whose request nobody was called for loses its connection`() throws {
        let name = freshName()
        let server = try PortServer(try PortName(name), maximumLength: 100)
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let client = plainThread { try remote.ask() }
        var isRefused = false
        try waitUntil("the request") {
            let hasServed = server.serve { _, _ throws(PortServer.NotHandled) in
                isRefused = true
                throw PortServer.NotHandled()
            }
            #expect(!hasServed)
            return isRefused
        }
        #expect(throws: RunLoop.PortError.becameInvalid) { try client.join() }
        server.withdraw()
        server.end()
    }

    @Test func `a peek at a part of a message does not bring the descriptors of the next one`() throws {
        let (connection, pair, scratch) = (SocketPair(), SocketPair(), FrameReceiver.makeScratch())
        defer { scratch.deallocate() }
        var receiver = FrameReceiver(maximumLength: 100, takesDescriptors: true, peer: getpid(), scratch: scratch)
        let first = rawFrame(1, length: 2, body: [5, 6, 1])
        #expect(write(connection.far, first, first.count) == first.count)
        sendRaw(connection.far, rawFrame(1, descriptors: 1, length: 0, body: [1]), pair.near)
        var counts: [Int] = []
        for _ in 0..<100 where counts.count < 2 {
            guard case .received = receiver.receive(from: connection.near, limit: 10, .peeking) else { break }
            while let (_, passed) = try receiver.next() { counts.append(passed.count) }
        }
        receiver.close()
        #expect(counts == [0, 1])
    }
}

#endif
