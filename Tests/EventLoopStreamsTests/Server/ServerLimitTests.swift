// Rules proved here (StreamServer.swift, ServerCore.swift):
// - At most `connectionLimit` connections are served. The others wait, and none is lost.
// - A connection counts until its descriptor is closed, whatever its task does.
// - Without descriptors the server waits, and goes on when there are some again.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Counts how many calls of `serve` are in progress.
private final class Gauge: Sendable {
    private let state = Box((now: 0, highest: 0, total: 0))
    var highest: Int { state.value.highest }
    var total: Int { state.value.total }

    func enter() {
        state.change { state in
            state.now += 1
            state.total += 1
            state.highest = max(state.highest, state.now)
        }
    }
    func leave() { state.change { $0.now -= 1 } }
}

#if os(Linux)
/// Returns the one before.
@discardableResult
private func setDescriptorLimit(_ count: rlim_t) -> rlim_t {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    defer {
        limit.rlim_cur = count
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
    return limit.rlim_cur
}
#endif

@Suite(.bounded, .tags(.threads)) struct ServerLimitTests {
    @Test(arguments: [1, 3], [1, 4])
    func `no more connections are served than the limit, and none is lost`(loopCount: Int, limit: Int) async throws {
        try await withLoops(loopCount) { loops in
            let (gauge, highest) = (Gauge(), Box(0))
            let server = try StreamServer(listeningOn: anyPort, on: loops, connectionLimit: limit) { stream in
                gauge.enter()
                _ = try? await stream.read()
                gauge.leave()
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<60 {
                    group.addTask {
                        let client = try await ByteStream.connect(to: server.localAddress, on: loops[number % loopCount])
                        for _ in 0..<(number % 7) { await Task.yield() }
                        let count = server.connections
                        highest.change { $0 = max($0, count) }
                        try await client.write("x")
                        #expect(try await client.read() == nil)
                        client.close()
                    }
                }
                try await group.waitForAll()
            }
            #expect(gauge.highest <= limit && gauge.total == 60 && highest.value <= limit)
            await server.shutdown()
        }
    }

    @Test func `a client beyond the limit waits until another connection is closed`() async throws {
        try await withLoops(1) { loops in
            let server = try StreamServer(listeningOn: anyPort, on: loops, connectionLimit: 1, serve: echoLines)
            let first = try await ByteStream.connect(to: server.localAddress, on: loops[0])
            #expect(try await first.ask("1") == "1")
            let second = try await ByteStream.connect(to: server.localAddress, on: loops[0])
            try await second.write("2\n")
            // The loop has had every chance to accept it.
            for _ in 0..<20 { try await loops[0].performAsync {} }
            #expect(server.connections == 1 && second.bytesReceived == 0)
            first.close()
            var lines = second.lines().makeAsyncIterator()
            #expect(try await lines.next() == "2")
            #expect(server.connections == 1)
            second.close()
            await server.shutdown()
        }
    }

    @Test func `a connection counts while it sends after serve has returned, and does not when its task goes on`() async throws {
        try await withLoops(1) { loops in
            let (hasReturned, mayReturn) = (Box(false), Gate())
            let server = try StreamServer(listeningOn: anyPort, on: loops, options: patientOptions, connectionLimit: 1) { stream in
                if hasReturned.value {
                    stream.close()
                    try? await mayReturn.waitInTask()
                } else {
                    stream.send(Array(repeating: 7, count: 8_000_000))
                    hasReturned.value = true
                }
            }
            let client = rawClient(server.localAddress)
            try await suspendUntil("serve returns") { hasReturned.value }
            for _ in 0..<20 { try await loops[0].performAsync {} }
            #expect(server.connections == 1)
            #expect(try await elsewhere { countAll(client) } == 8_000_000)
            close(client)
            // The second task goes on, but its descriptor is closed: there is room for a third.
            let others = [
                try await ByteStream.connect(to: server.localAddress, on: loops[0]),
                try await ByteStream.connect(to: server.localAddress, on: loops[0]),
            ]
            for other in others { #expect(try await other.read() == nil) }
            try await suspendUntil("both are closed") { server.connections == 0 }
            mayReturn.open()
            await server.shutdown()
        }
    }

    @Test func `a peer that does not read is cut off after the write timeout`() throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        try inManualTime { loop, clock, trace in
            var options = ByteStream.Options()
            options.writeTimeout = .seconds(7)
            // Over TCP the kernel may take more bytes later than now, and the clock does not wait for it.
            let address = SocketAddress.unix(path: folder + "/socket")
            let server = try StreamServer(listeningOn: address, on: [loop], options: options) { stream in
                stream.send(Array(repeating: 7, count: 50_000_000))
                trace.add("sent \(clock.ms)")
                stream.onEnd { _, _ in trace.add("ended \(clock.ms)") }
            }
            let peer = try RunLoop.SocketSource(connectingTo: address) { _, _ in }
            loop.add(peer)
            let timer = RunLoop.Timer(every: .seconds(1)) { timer in
                if server.connections == 0 && trace.list.count == 2 {
                    timer.invalidate()
                    loop.stop()
                }
            }
            loop.add(timer)
            #expect(loop.run(for: .seconds(100)) == .stopped)
            #expect(trace.description == "sent 0 ended 7000")
            peer.invalidate()
            try loop.runTask { await server.shutdown() }
        }
    }

    @Test(arguments: [1, 2])
    func `connections that are reset before they are served take no room`(loopCount: Int) async throws {
        try await withLoops(loopCount) { loops in
            let server = try StreamServer(listeningOn: anyPort, on: loops, connectionLimit: 2, serve: echoLines)
            for _ in 0..<200 {
                let client = rawClient(server.localAddress)
                // Closing it resets it.
                var option = linger(l_onoff: 1, l_linger: 0)
                setsockopt(client, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
                close(client)
            }
            for _ in 0..<5 {
                let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
                #expect(try await client.ask("hello") == "hello")
                client.close()
            }
            try await suspendUntil("all have ended") { server.connections == 0 }
            await server.shutdown()
        }
    }

    @Test func `ten thousand connections that are reset while they wait take no room, and no stack`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let thread = try RunLoopThread(name: "small", stackSize: 512 << 10)
            let (listener, link) = (ScriptedListener(), MemoryLink(capacity: 100, seed: nil))
            let server = try StreamServer(
                accepting: { accept in
                    listener.accept.value = accept
                    return listener
                }, on: thread.runLoop, options: .init(), connectionLimit: 1, label: nil, file: #fileID, line: #line,
                makeTask: { _, body in Task { await body() } }, serve: { stream in _ = try? await stream.read() })
            guard let accept = listener.accept.value else { preconditionFailure("a server has listeners") }
            accept(.transport(MemoryTransport(link, end: 0)))
            for _ in 0..<10_000 { accept(.transport(ResetConnection())) }
            let waiting = server.core.state.withLock { $0.parked.count }
            #expect(server.connections == 1 && waiting == 10_000)
            link.reset()
            try await suspendUntil("all have ended") { server.connections == 0 }
            await server.shutdown()
            thread.stop()
            await thread.join()
        }
    }

    #if os(Linux)
    @Test func `a process without descriptors waits, and serves all clients when it has some again`() async {
        await #expect(processExitsWith: .success) {
            let threads = try LoopThreads(2)
            let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: threads.loops) { stream in
                stream.send("served")
            }
            // Everything that a task and a client need exists.
            let warm = try await ByteStream.connect(to: server.localAddress, on: threads.loops[0])
            #expect(try await warm.readAll() == "served")
            warm.close()
            try await suspendUntil("the connection ends") { server.connections == 0 }
            let clients = (0..<20).map { _ in rawSocket() }
            // A new descriptor would have a higher number.
            let old = setDescriptorLimit(3)
            for client in clients { connectRaw(client, server.localAddress) }
            for _ in 0..<50 { for loop in threads.loops { try await loop.performAsync {} } }
            #expect(server.connections == 0)
            setDescriptorLimit(old)
            for client in clients {
                #expect(try readToEnd(client, "the server's answer") == "served")
                close(client)
            }
            await server.shutdown()
            #expect(server.connections == 0)
            await threads.stop()
        }
    }

    @Test func `a shutdown without descriptors serves all clients that have connected when it has some again`() async {
        await #expect(processExitsWith: .success) {
            let threads = try LoopThreads(2)
            let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: threads.loops) { stream in
                stream.send("served")
                // The first one stays until its client ends.
                _ = try? await stream.readAll()
            }
            let first = rawSocket()
            connectRaw(first, server.localAddress)
            try await suspendUntil("it is served") { server.connections == 1 }
            let clients = (0..<20).map { _ in rawSocket() }
            let old = setDescriptorLimit(3)
            for client in clients { connectRaw(client, server.localAddress) }
            let shutdown = Task { await server.shutdown(grace: .seconds(600)) }
            try await suspendUntil("the listener refuses connections") { !server.isAccepting }
            for _ in 0..<50 { for loop in threads.loops { try await loop.performAsync {} } }
            #expect(server.connections == 1)
            setDescriptorLimit(old)
            for client in [first] + clients {
                Glibc.shutdown(client, Int32(SHUT_WR))
                #expect(try readToEnd(client, "the server's answer") == "served")
                close(client)
            }
            await shutdown.value
            await threads.stop()
        }
    }
    #endif
}
