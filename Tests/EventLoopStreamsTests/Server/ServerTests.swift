// Rules proved here (StreamServer.swift):
// - A server listens when it is made, on all of its loops, and gives each connection a task on a loop of its own.
// - When `serve` returns, what was written is sent, and the stream is closed.
// - A connection's task has no task-locals, and is not cancelled when its client goes.
// - A port that belongs to another socket is refused, unless both servers share it.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads, .memory)) struct ServerTests {
    @Test func `a client is served, and its connection is counted until it has ended`() async throws {
        try await withLoops(1) { loops in
            let server = try StreamServer(listeningOn: anyPort, on: loops, serve: echoLines)
            let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
            #expect(try await client.ask("hello") == "hello")
            #expect(server.connections == 1)
            client.close()
            try await suspendUntil("the connection ends") { server.connections == 0 }
            await server.shutdown()
        }
    }

    @Test func `the task runs on the loop of its stream`() async throws {
        try await withLoops(2) { loops in
            let trace = Trace()
            let server = try StreamServer(listeningOn: anyPort, on: loops) { stream in
                if stream.loop.isIsolatingCurrentContext() != true { trace.add("elsewhere") }
                try? await stream.write("x")
            }
            for _ in 0..<20 {
                let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
                #expect(try await client.readAll() == "x")
            }
            await server.shutdown()
            #expect(trace.description == "")
        }
    }

    @TaskLocal private static var maker = "nobody"

    private static func serverOfMaker(on loops: [RunLoop]) throws -> StreamServer {
        try $maker.withValue("the maker") {
            try StreamServer(listeningOn: anyPort, on: loops) { stream in try? await stream.write(Self.maker) }
        }
    }

    @Test func `a connection's task has no task-locals of the task that made the server`() async throws {
        try await withLoops(1) { loops in
            let server = try Self.serverOfMaker(on: loops)
            let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
            #expect(try await client.readAll() == "nobody")
            client.close()
            await server.shutdown()
        }
    }

    @Test func `a client that goes cancels no task`() async throws {
        try await withLoops(1) { loops in
            let trace = Trace()
            let server = try StreamServer(listeningOn: anyPort, on: loops) { stream in
                _ = try? await stream.readAll()
                trace.add(Task.isCancelled ? "cancelled" : "goes on")
            }
            let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
            client.close()
            await server.shutdown(grace: .seconds(1_000))
            #expect(trace.description == "goes on")
        }
    }

    @Test func `all loops of a TCP server get connections`() async throws {
        try await withLoops(3) { loops in
            let served = Box<[ObjectIdentifier: Int]>([:])
            let server = try StreamServer(listeningOn: anyPort, on: loops) { stream in
                let loop = ObjectIdentifier(stream.loop)
                served.change { $0[loop, default: 0] += 1 }
            }
            var rounds = 0
            // The kernel distributes by the client's port.
            while served.value.count < 3 && rounds < 1_000 {
                let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
                _ = try await client.readAll()
                client.close()
                rounds += 1
            }
            #expect(served.value.count == 3)
            await server.shutdown()
        }
    }

    #if os(Linux)
    /// The thread that reads would close it, and the close may block (SO_LINGER).
    @Test(.enabled(if: kernelRefusesDescriptors(), "the kernel is older than Linux 6.16"))
    func `a client of a Unix socket sends no descriptors`() async throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        try await withLoops(1) { loops in
            let server = try StreamServer(listeningOn: .unix(path: folder + "/socket"), on: loops, serve: echoLines)
            let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
            let errno = client.withDescriptor { sendDescriptors([$0], with: [1], over: $0) }
            #expect(errno == EPERM)
            #expect(try await client.ask("you still serve me") == "you still serve me")
            client.close()
            await server.shutdown()
        }
    }
    #endif

    @Test func `the connections of a Unix socket go to the loops in turn`() async throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let address = SocketAddress.unix(path: folder + "/socket")
        try await withLoops(3) { loops in
            let served = Box<[ObjectIdentifier]>([])
            let server = try StreamServer(listeningOn: address, on: loops) { stream in
                let loop = ObjectIdentifier(stream.loop)
                served.change { $0.append(loop) }
            }
            for _ in 0..<9 {
                let client = try await ByteStream.connect(to: address, on: loops[0])
                _ = try await client.readAll()
                client.close()
            }
            #expect(served.value == (0..<9).map { ObjectIdentifier(loops[$0 % 3]) })
            #expect(throws: inUse(address)) { try StreamServer(listeningOn: address, on: loops, serve: echoLines) }
            await server.shutdown()
            #expect(filesIn(folder).isEmpty)
            // The address is free.
            await (try await whenFree { try StreamServer(listeningOn: address, on: loops, serve: echoLines) }).shutdown()
        }
    }

    @Test func `when serve returns, everything is sent before the connection is closed`() async throws {
        try await withLoops(1) { loops in
            let size = 3_000_000
            let server = try StreamServer(listeningOn: anyPort, on: loops, options: patientOptions) { stream in
                stream.send(Array(repeating: 7, count: size))
            }
            let address = server.localAddress
            let received = try await elsewhere {
                let client = rawClient(address)
                defer { close(client) }
                // Bytes that the server does not read must not reset the connection.
                try #require(write(client, "unread", 6) == 6)
                return countAll(client)
            }
            #expect(received == size)
            await server.shutdown()
        }
    }

    @Test(arguments: [1, 2], [1, 2])
    func `a second server on the port is refused, unless both share it`(first: Int, second: Int) async throws {
        try await withLoops(2) { loops in
            let (some, others) = (Array(loops.prefix(first)), Array(loops.prefix(second)))
            for shares in [false, true] {
                let server = try StreamServer(listeningOn: anyPort(of: 10 * first + second), on: some, sharesPort: shares, serve: echoLines)
                let address = server.localAddress
                #expect(throws: inUse(address)) { try StreamServer(listeningOn: address, on: others, serve: echoLines) }
                if shares {
                    let second = try StreamServer(listeningOn: address, on: others, sharesPort: true, serve: echoLines)
                    #expect(second.localAddress == address)
                    await second.shutdown()
                } else if first == 1 {
                    #expect(throws: inUse(address)) {
                        try StreamServer(listeningOn: address, on: others, sharesPort: true, serve: echoLines)
                    }
                }
                await server.shutdown()
                // The port is free when shutdown returns.
                await (try await whenFree { try StreamServer(listeningOn: address, on: others, serve: echoLines) }).shutdown()
            }
        }
    }

    @Test(arguments: [false, true])
    func `a port on which another socket listens is refused`(reusesPort: Bool) async throws {
        try await withLoops(2) { loops in
            let other = try RunLoop.SocketSource(listeningOn: anyPort, reusePort: reusesPort) { _, descriptor, _ in close(descriptor) }
            let address = other.localAddress!
            for count in [1, 2] {
                #expect(throws: inUse(address)) {
                    try StreamServer(listeningOn: address, on: Array(loops.prefix(count)), serve: echoLines)
                }
            }
            other.invalidate()
        }
    }

    @Test func `of servers that start at the same time on one port, one succeeds`() async throws {
        try await withLoops(2) { loops in
            for _ in 0..<50 {
                let address = try SilentPeer(anyPort(of: 1)).address  // free again when this returns
                let servers = Locked<[StreamServer]>([])
                // As for `whenFree`: none starts while a process of another test has a copy of the peer's listener.
                try await suspendUntil("the address is free") {
                    let threads = (0..<3).map { _ in
                        plainThread {
                            do {
                                let server = try StreamServer(listeningOn: address, on: loops, serve: echoLines)
                                servers.withLock { $0.append(server) }
                            } catch { #expect(error as? RunLoop.SourceError == inUse(address)) }
                        }
                    }
                    for thread in threads { try thread.join() }
                    return servers.withLock { !$0.isEmpty }
                }
                let started = servers.withLock { $0 }
                #expect(started.count == 1)
                for server in started { await server.shutdown() }
            }
        }
    }

    @Test func `a loop that has ended is refused, and nothing listens`() async throws {
        let ended = try LoopThreads(1)
        await ended.stop()
        try await withLoops(1) { loops in
            let address = try SilentPeer(anyPort(of: 2)).address
            for list in [ended.loops, loops + ended.loops, ended.loops + loops] {
                await #expect(throws: RunLoop.SourceError.loopEnded) {
                    _ = try await whenFree { try StreamServer(listeningOn: address, on: list, serve: echoLines) }
                }
            }
            try await loops[0].performAsync { #expect(loops[0].itemCount == 0, "\(loops[0].debugDescription)") }
            await (try await whenFree { try StreamServer(listeningOn: address, on: loops, serve: echoLines) }).shutdown()
        }
    }

    @Test func `a server without loops, or with a limit of zero, is a mistake with a sentence`() async throws {
        let none = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: []) { _ in }
        }
        let noneSaid = String(decoding: try #require(none).standardErrorContent, as: UTF8.self)
        #expect(noneSaid.contains("pass at least one loop"))
        let zero = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "loop")
            _ = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.runLoop], connectionLimit: 0) { _ in }
        }
        let zeroSaid = String(decoding: try #require(zero).standardErrorContent, as: UTF8.self)
        #expect(zeroSaid.contains("pass 1 or more"))
    }

    @Test func `a server on all addresses of IPv6 serves IPv4, too`() async throws {
        guard let peer = try? SilentPeer(.ipv6(host: "::1", port: 0)) else { return }  // a machine without IPv6
        withExtendedLifetime(peer) {}
        try await withLoops(2) { loops in
            let server = try StreamServer(listeningOn: .ipv6(host: "::", port: 0), on: loops, serve: echoLines)
            guard case .ipv6(_, let port) = server.localAddress else { return }
            for address in [SocketAddress.ipv6(host: "::1", port: port), .ipv4(host: "127.0.0.1", port: port)] {
                let client = try await ByteStream.connect(to: address, timeout: .seconds(Int64.max), on: loops[0])
                #expect(try await client.ask("hello") == "hello")
                client.close()
            }
            await server.shutdown(grace: .seconds(Int64.max))
        }
    }

    @Test func `a server serves in its mode, and its tasks run in the common modes`() throws {
        let mode = RunLoop.Mode("serving")
        try inManualTime { loop, _, trace in
            let server = try StreamServer(listeningOn: anyPort, on: [loop], mode: mode) { stream in
                trace.add("\((try? await stream.readAll()) ?? "failed")")
            }
            let keepAlive = loop.keepAlive()
            let client = rawClient(server.localAddress)
            #expect(write(client, "hello", 5) == 5)
            shutdown(client, Int32(SHUT_WR))
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(server.connections == 0)
            // The mode is not empty: the listener is in it, and then the stream.
            #expect(loop.run(mode: mode, for: .seconds(1)) == .timedOut)
            #expect(server.connections == 1 && trace.description == "")
            for _ in 0..<3 {
                _ = loop.run(for: .seconds(1))
                _ = loop.run(mode: mode, for: .seconds(1))
            }
            #expect(server.connections == 0 && trace.description == "hello")
            keepAlive.cancel()
            close(client)
            let task = Task(executorPreference: loop) { await server.shutdown() }
            for _ in 0..<3 {
                _ = loop.run(for: .seconds(1))
                _ = loop.run(mode: mode, for: .seconds(1))
            }
            try loop.runTask { await task.value }
        }
    }

    @Test func `a flood of connections is served`() async throws {
        try await withLoops(2) { loops in
            let server = try StreamServer(listeningOn: anyPort, on: loops, serve: echoLines)
            try await withThrowingTaskGroup(of: Bool.self) { group in
                for number in 0..<400 {
                    group.addTask {
                        let client = try await ByteStream.connect(to: server.localAddress, on: loops[number % 2])
                        defer { client.close() }
                        return try await client.ask("\(number)") == "\(number)"
                    }
                }
                for try await isRight in group { #expect(isRight) }
            }
            await server.shutdown()
            #expect(server.connections == 0)
        }
    }
}
