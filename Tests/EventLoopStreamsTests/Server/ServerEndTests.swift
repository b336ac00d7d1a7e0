// Rules proved here (StreamServer.swift):
// - Of the clients that have connected before a shutdown, none is reset. Their tasks have no task-locals of its caller.
// - Adopted listeners are served, and closed by the server also when it cannot be made; then their queue is left alone. So is the file of a Unix
//   socket in any case.
// - `waitForEnd` says how the server has ended, and `isAccepting` whether it goes on. A listener that fails is reported.
// - A stale Unix socket file is replaced, and nothing else is. The file is removed at the end, wherever the program's directory is.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A socket that listens, blocking as those of systemd.
private func rawListener() -> (descriptor: Int32, address: SocketAddress) {
    let descriptor = rawSocket()
    var native = sockaddr_in()
    native.sin_family = sa_family_t(AF_INET)
    inet_pton(AF_INET, "127.0.0.1", &native.sin_addr)
    let code = withUnsafePointer(to: &native) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
    }
    precondition(code == 0 && listen(descriptor, 1024) == 0)
    return (descriptor, SocketAddress(localOf: descriptor)!)
}

/// "hi" to each client.
@Sendable private func greet(_ stream: ByteStream) async { try? await stream.write("hi") }

@Suite(.bounded) struct ServerEndTests {
    @Test(arguments: [1, 3]) func `clients that wait in the kernel's queue are served by a shutdown, not reset`(_ loopCount: Int)
        async throws
    {
        try await withLoops(loopCount) { loops in
            let server = try StreamServer(listeningOn: anyPort(of: 20 + loopCount), on: loops, connectionLimit: 5) { stream in
                await greet(stream)
            }
            // The loops are busy, so nothing is accepted.
            let gate = Gate()
            for loop in loops { loop.perform { gate.wait() } }
            let clients = (0..<30).map { _ in rawClient(server.localAddress) }
            let shutdown = Task { await server.shutdown(grace: .seconds(600)) }
            try await suspendUntil("the shutdown has begun") { !server.isAccepting }
            gate.open()
            // All at once: a client that does not close holds its place in the limit for seconds.
            let served = await withTaskGroup(of: Int.self) { group in
                for client in clients {
                    group.addTask {
                        await onThread {
                            defer { close(client) }
                            return countAll(client) == 2 ? 1 : 0
                        }
                    }
                }
                return await group.reduce(0, +)
            }
            #expect(served == 30)
            await shutdown.value
            #expect(await server.waitForEnd() == .closed)
        }
    }

    @TaskLocal private static var caller = "nobody"

    @Test func `a connection that a shutdown accepts has no task-locals of its caller`() async throws {
        try await withLoops(1) { loops in
            let server = try StreamServer(listeningOn: anyPort(of: 31), on: loops) { stream in try? await stream.write(Self.caller) }
            // The loop is busy, so the client waits in the kernel's queue.
            let (gate, isBusy) = (Gate(), Box(false))
            loops[0].perform {
                isBusy.value = true
                gate.wait()
            }
            try await suspendUntil("the loop is busy") { isBusy.value }
            let client = rawClient(server.localAddress)
            let shutdown = Task { await Self.$caller.withValue("the caller") { await server.shutdown(grace: .seconds(1_000)) } }
            try await suspendUntil("the shutdown has begun") { !server.isAccepting }
            gate.open()
            let count = await onThread {
                defer { close(client) }
                return countAll(client)
            }
            #expect(count == "nobody".utf8.count)
            await shutdown.value
        }
    }

    @Test func `the queue of a listener that is moving to another loop when the shutdown begins is served, too`() async throws {
        let (ending, staying) = (try LoopThreads(1), try LoopThreads(1))
        let (moving, other) = (ScriptedListener(), ScriptedListener())
        let core = ServerCore(
            ServerCore.Settings(
                mode: .common, options: .init(), connectionLimit: .max, label: nil, file: #fileID, line: #line, makeTask: nil,
                serve: { _ in }))
        _ = try core.listen(ending.loops + staying.loops) { _ in [moving, other] }
        // It has left the one loop, and the server does not know yet that it has joined the other.
        moving.onJoin.value = { _ in core.stopListening() }
        await ending.stop()
        #expect(other.trace.list == ["join", "refuse", "accept", "end"])
        #expect(moving.trace.list == ["join", "join", "refuse", "accept", "end"])
        #expect(core.state.withLock { $0.phase } == .over)
        await staying.stop()
    }

    @Test func `a Unix server serves its queue, too, and refuses others`() async throws {
        let directory = makeTemporaryDirectory()
        defer { removeFlatDirectory(directory) }
        try await withLoops(1) { loops in
            let address = SocketAddress.unix(path: directory + "/socket")
            let server = try StreamServer(listeningOn: address, on: loops, serve: greet)
            let client = try await withLoops(1) { others in
                let gate = Gate()
                loops[0].perform { gate.wait() }
                let connected = Task { try await ByteStream.connect(to: address, on: others[0]) }
                let client = try await connected.value
                let shutdown = Task { await server.shutdown(grace: .seconds(600)) }
                try await suspendUntil("the shutdown has begun") { !server.isAccepting }
                gate.open()
                let text = try await client.readAll()
                client.close()
                await shutdown.value
                return text
            }
            #expect(client == "hi" && filesIn(directory).isEmpty)
        }
    }

    @Test func `an adopted listener is served and closed, keeps its flag, and a successor that has it goes on`() async throws {
        try await withLoops(2) { loops in
            let (listener, address) = rawListener()
            let copy = fcntl(listener, F_DUPFD_CLOEXEC, 0)
            let first = try StreamServer(adopting: [listener], on: loops, serve: greet)
            #expect(first.localAddress == address && first.isAccepting)
            for _ in 0..<4 {
                let client = try await ByteStream.connect(to: address, on: loops[0])
                #expect(try await client.readAll() == "hi")
                client.close()
            }
            #expect(fcntl(copy, F_GETFL) & O_NONBLOCK == 0)
            let second = try StreamServer(adopting: [copy], on: loops, serve: greet)
            await first.shutdown(grace: .zero)
            #expect(!first.isAccepting && second.isAccepting)
            let client = try await ByteStream.connect(to: address, on: loops[0])
            #expect(try await client.readAll() == "hi")
            client.close()
            await second.shutdown(grace: .zero)
        }
    }

    @Test func `a server whose last listener fails accepts nobody and says so, and serves the connections that it has`() async {
        // A process of its own, because it has the handler of warnings.
        await #expect(processExitsWith: .success) {
            let warnings = Box<[RunLoop.Warning]>([])
            RunLoop.setWarningHandler { warning in warnings.change { $0.append(warning) } }
            let directory = makeTemporaryDirectory(in: "/tmp")
            let local = socketFile(directory + "/socket")
            precondition(listen(local, 16) == 0 && fcntl(local, F_SETFL, O_NONBLOCK) == 0, "errno \(errno)")
            let (remote, address) = rawListener()
            // Those of another process.
            let copies = [local, remote].map { fcntl($0, F_DUPFD_CLOEXEC, 0) }
            try await withLoops(1) { loops in
                let server = try StreamServer(adopting: [local, remote], on: loops, label: "failing", serve: echoLines)
                let client = try await ByteStream.connect(to: address, on: loops[0])
                #expect(try await client.ask("1") == "1")
                shutdown(copies[0], Int32(SHUT_RDWR))
                try await suspendUntil("the first listener fails", within: .seconds(60)) {
                    server.core.state.withLock { $0.listeners } == 1
                }
                #expect(server.isAccepting)
                shutdown(copies[1], Int32(SHUT_RDWR))
                try await suspendUntil("the last listener fails", within: .seconds(60)) { !server.isAccepting }
                #expect(try await client.ask("2") == "2" && server.connections == 1)
                client.close()
                await server.shutdown()
                #expect(await server.waitForEnd() == .closed)
            }
            removeFlatDirectory(directory)
            for copy in copies { close(copy) }
            let said = warnings.value.filter { $0.kind == .endedUnderServer }
            #expect(said.map(\.label) == ["failing", "failing"])
            #expect(said.first?.message.contains("\(directory)/socket: Invalid argument (EINVAL)") == true)
        }
    }

    @Test func `what cannot be adopted is a typed error, and every descriptor is closed`() async throws {
        try await withLoops(1) { loops in
            let (plain, peer) = connectedSockets()
            defer { close(peer) }
            let (listener, _) = rawListener()
            #expect(throws: RunLoop.SourceError.self) { _ = try StreamServer(adopting: [listener, plain], on: loops, serve: greet) }
            #expect(throws: RunLoop.SourceError.badDescriptor(-1)) { _ = try StreamServer(adopting: [-1], on: loops, serve: greet) }
            #expect(throws: RunLoop.SourceError.self) { _ = try StreamServer(adopting: [], on: loops, serve: greet) }
            var byte: UInt8 = 0
            #expect(read(peer, &byte, 1) == 0, "the socket was closed")
        }
    }

    @Test func `a server that cannot be made because a loop has ended serves nobody, and leaves the queue to others`() async throws {
        let ended = try LoopThreads(1)
        await ended.stop()
        try await withLoops(1) { loops in
            let (listener, address) = rawListener()
            let copy = fcntl(listener, F_DUPFD_CLOEXEC, 0)
            let clients = (0..<3).map { _ in rawClient(address) }
            let served = Counter()
            #expect(throws: RunLoop.SourceError.loopEnded) {
                _ = try StreamServer(adopting: [listener], on: loops + ended.loops) { _ in served.increment() }
            }
            let heir = try StreamServer(adopting: [copy], on: loops, serve: greet)
            for client in clients {
                let count = await onThread { countAll(client) }
                #expect(count == 2)
                close(client)
            }
            #expect(served.value == 0)
            await heir.shutdown()
        }
    }

    @Test func `a server whose loops end says so, and cancels its tasks`() async throws {
        let threads = try LoopThreads(2)
        let trace = Trace()
        let server = try StreamServer(listeningOn: anyPort(of: 24), on: threads.loops) { _ in
            await suspendUntilCancelled()
            trace.add("cancelled")
        }
        let client = rawClient(server.localAddress)
        try await suspendUntil("it is served") { server.connections == 1 }
        let end = Task { await server.waitForEnd() }
        await threads.stop()
        #expect(await end.value == .loopEnded)
        #expect(trace.list == ["cancelled"] && !server.isAccepting)
        await server.shutdown()
        #expect(await server.waitForEnd() == .loopEnded)
        close(client)
    }

    @Test func `a cancelled caller of waitForEnd returns at once, and the server goes on`() async throws {
        try await withLoops(1) { loops in
            let server = try StreamServer(listeningOn: anyPort(of: 25), on: loops, serve: greet)
            let waiting = Task { await server.waitForEnd() }
            waiting.cancel()
            #expect(await waiting.value == .closed && server.isAccepting)
            await server.shutdown()
        }
    }

    @Test func `a stale Unix socket is replaced, a live one and other files are not`() async throws {
        let directory = makeTemporaryDirectory()
        defer { removeFlatDirectory(directory) }
        try await withLoops(1) { loops in
            let address = SocketAddress.unix(path: directory + "/socket")
            // A process that was killed leaves this.
            let stale = socketFile(directory + "/socket")
            close(stale)
            let server = try StreamServer(listeningOn: address, on: loops, serve: greet)
            #expect(throws: inUse(address)) { _ = try StreamServer(listeningOn: address, on: loops, serve: greet) }
            let client = try await ByteStream.connect(to: address, on: loops[0])
            #expect(try await client.readAll() == "hi")
            client.close()
            await server.shutdown()
            let plain = SocketAddress.unix(path: directory + "/plain")
            close(open(directory + "/plain", O_CREAT | O_WRONLY, 0o600))
            #expect(throws: inUse(plain)) { _ = try StreamServer(listeningOn: plain, on: loops, serve: greet) }
            #expect(filesIn(directory) == ["plain"])
        }
    }

    @Test func `a relative path is made absolute`() async throws {
        // A process of its own, because it changes its directory.
        await #expect(processExitsWith: .success) {
            let directory = OwnDirectory()
            try await withLoops(1) { loops in
                let server = try StreamServer(listeningOn: .unix(path: "socket"), on: loops) { _ in }
                precondition(chdir("/") == 0)
                let isThere = filesIn(directory.path) == ["socket"]
                await server.shutdown()
                if !isThere || !filesIn(directory.path).isEmpty { _exit(1) }
            }
            directory.leave()
        }
    }

    @Test func `connecting to a free port of this host never connects the socket to itself`() async throws {
        try await withLoops(1) { loops in
            // The port that the kernel chooses next is near the last one, so the target is in the way of the search.
            for _ in 0..<300 {
                let probe = rawListener()
                close(probe.descriptor)
                do {
                    let stream = try await ByteStream.connect(to: probe.address, on: loops[0])
                    #expect(stream.localAddress != stream.peerAddress)
                    stream.close()
                } catch {}
            }
        }
    }
}

/// Runs `body` on a thread of its own, so that it blocks no thread of the pool.
private func onThread<R: Sendable>(_ body: @escaping @Sendable () -> R) async -> R {
    await withCheckedContinuation { continuation in _ = plainThread { continuation.resume(returning: body()) } }
}
