// Rules proved here (StreamServer.swift, ServerCore+Shutdown.swift):
// - Shutdown closes the listeners, lets connections end, cancels them after `grace`, and returns when all have ended.
// - It returns although loops end. Several calls return together.
// - A server that is released goes on. With its loops everything of it ends.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct ServerShutdownTests {
    @Test func `a connection that is being served may end within the grace`() async throws {
        try await withLoops(2) { loops in
            let trace = Trace()
            let server = try StreamServer(listeningOn: anyPort(of: 3), on: loops) { stream in
                await echoLines(stream)
                if Task.isCancelled { trace.add("cancelled") }
            }
            let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
            #expect(try await client.ask("1") == "1")
            let shutdown = Task {
                await server.shutdown(grace: .seconds(1_000))
                trace.add("shut down")
            }
            // Nobody listens any more, and the connection is served.
            try await suspendUntil("the listeners close") {
                do {
                    try await ByteStream.connect(to: server.localAddress, on: loops[0]).close()
                    return false
                } catch { return true }
            }
            #expect(try await client.ask("2") == "2")
            #expect(trace.description == "")
            client.close()
            await shutdown.value
            #expect(trace.description == "shut down" && server.connections == 0)
            await server.shutdown()
        }
    }

    @Test func `after the grace, in the loop's time, tasks are cancelled and their streams closed`() throws {
        try inManualTime { loop, clock, trace in
            let server = try StreamServer(listeningOn: anyPort, on: [loop]) { stream in
                await suspendUntilCancelled()
                trace.add("\(stream.isOpen ? "open" : "closed") \(clock.ms)")
            }
            let client = rawClient(server.localAddress)
            try loop.runTask {
                try await suspendUntil("it is served") { server.connections == 1 }
                await server.shutdown(grace: .seconds(5))
                trace.add("shut down \(clock.ms)")
            }
            #expect(trace.list.count == 2 && trace.list[0].hasSuffix(" 5000") && trace.list[1] == "shut down 5000", "\(trace)")
            _ = loop.run(for: .zero)
            #expect(loop.itemCount == 0, "\(loop.debugDescription)")
            close(client)
        }
    }

    @Test func `the shortest grace counts, and all calls return together`() throws {
        try inManualTime { loop, clock, trace in
            let server = try StreamServer(listeningOn: anyPort, on: [loop]) { _ in await suspendUntilCancelled() }
            let client = rawClient(server.localAddress)
            try loop.runTask {
                try await suspendUntil("it is served") { server.connections == 1 }
                await withTaskGroup(of: Void.self) { group in
                    for seconds in [50, 3, 20] {
                        group.addTask {
                            await server.shutdown(grace: .seconds(seconds))
                            trace.add("\(clock.ms)")
                        }
                    }
                }
                await server.shutdown()
                await server.shutdown(grace: .zero)
            }
            #expect(trace.description == "3000 3000 3000")
            close(client)
        }
    }

    @Test func `without a grace, and when the calling task is cancelled, connections end at once`() async throws {
        for isCancelled in [false, true] {
            try await withLoops(1) { loops in
                let server = try StreamServer(listeningOn: anyPort, on: loops) { _ in await suspendUntilCancelled() }
                let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
                try await suspendUntil("it is served") { server.connections == 1 }
                let task = Task { await server.shutdown(grace: isCancelled ? .seconds(10_000) : .zero) }
                if isCancelled { task.cancel() }
                await task.value
                #expect(server.connections == 0)
                client.close()
            }
        }
    }

    @Test func `loops that end do not keep a shutdown waiting`() async throws {
        for count in [1, 3] {
            let threads = try LoopThreads(count)
            let server = try StreamServer(listeningOn: anyPort, on: threads.loops) { stream in
                // Ends with the stream, which ends with its loop.
                _ = try? await stream.readAll()
            }
            let clients = (0..<10).map { _ in rawClient(server.localAddress) }
            try await suspendUntil("all are served") { server.connections == 10 }
            let shutdown = Task { await server.shutdown(grace: .seconds(10_000)) }
            await threads.stop()
            await shutdown.value
            #expect(server.connections == 0)
            await server.shutdown()
            for client in clients { close(client) }
        }
    }

    @Test func `when one loop ends, the others go on`() async throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        for address in [anyPort, .unix(path: folder + "/socket")] {
            let (ending, staying) = (try LoopThreads(1), try LoopThreads(1))
            // The listener of a Unix socket is on the first loop.
            let server = try StreamServer(listeningOn: address, on: ending.loops + staying.loops) { stream in
                stream.send(stream.loop === staying.loops[0] ? "staying" : "ending")
            }
            await ending.stop()
            for _ in 0..<10 {
                let client = try await ByteStream.connect(to: server.localAddress, on: staying.loops[0])
                #expect(try await client.readAll() == "staying")
                client.close()
            }
            // Also the grace, which the remaining loop keeps.
            await server.shutdown(grace: .milliseconds(1))
            await staying.stop()
        }
    }

    @Test func `a connection that waits beyond the limit is served by another loop if its own ends`() async throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let (staying, ending) = (try LoopThreads(1), try LoopThreads(1))
        let goesOn = Gate()
        // The connections to a Unix socket go to the loops in turn, so the second one is for the loop that ends.
        let server = try StreamServer(
            listeningOn: .unix(path: folder + "/socket"), on: staying.loops + ending.loops, connectionLimit: 1
        ) { stream in
            try? await goesOn.waitInTask()
            stream.send("served")
        }
        var clients: [ByteStream] = []
        for _ in 0..<3 { clients.append(try await ByteStream.connect(to: server.localAddress, on: staying.loops[0])) }
        try await suspendUntil("one is served") { server.connections == 1 }
        // It accepts the others, too, which wait for room.
        let shutdown = Task { await server.shutdown(grace: .seconds(10_000)) }
        try await suspendUntil("the others wait in the server") { server.core.state.withLock { $0.parked.count } == 2 }
        await ending.stop()
        goesOn.open()
        for client in clients {
            #expect(try await client.readAll() == "served")
            client.close()
        }
        await shutdown.value
        await staying.stop()
    }

    @Test func `a released server goes on, and ends with its loops`() async throws {
        let isReleased = Gate()
        let threads = try LoopThreads(2)
        do {
            let canary = Canary { isReleased.open() }
            let address = try StreamServer(listeningOn: anyPort, on: threads.loops) { stream in
                canary.touch()
                await echoLines(stream)
            }.localAddress
            let client = try await ByteStream.connect(to: address, on: threads.loops[0])
            #expect(try await client.ask("1") == "1")
        }
        await threads.stop()
        try await isReleased.waitInTask()
    }

    @Test func `after a shutdown nothing of a server is left`() async throws {
        let isReleased = Gate()
        try await withLoops(2) { loops in
            do {
                let canary = Canary { isReleased.open() }
                let server = try StreamServer(listeningOn: anyPort, on: loops, connectionLimit: 1) { stream in
                    canary.touch()
                    await echoLines(stream)
                }
                let client = try await ByteStream.connect(to: server.localAddress, on: loops[0])
                #expect(try await client.ask("1") == "1")
                client.close()
                await server.shutdown()
            }
            try await isReleased.waitInTask()
            for loop in loops { try await loop.performAsync { #expect(loop.itemCount == 0, "\(loop.debugDescription)") } }
        }
    }

    @Test func `serve that awaits the shutdown of its own server is a mistake with a sentence`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "loop")
            let server = Box<StreamServer?>(nil)
            server.value = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.runLoop]) { _ in
                await server.value?.shutdown()
            }
            _ = rawClient(server.value!.localAddress)
            try await Task.sleep(for: .seconds(600))
        }
        let said = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(said.contains("shut the server down in another task"))
    }

    @Test func `connections that come during a shutdown are refused or served, and never lost`() async throws {
        try await withLoops(2) { loops in
            for round in 0..<20 {
                let (began, ended) = (Counter(), Counter())
                let server = try StreamServer(listeningOn: anyPort, on: loops, connectionLimit: 4) { stream in
                    began.increment()
                    _ = try? await stream.readAll()
                    ended.increment()
                }
                let clients = Task {
                    await withTaskGroup(of: Void.self) { group in
                        for number in 0..<20 {
                            group.addTask {
                                let client = try? await ByteStream.connect(to: server.localAddress, on: loops[number % 2])
                                client?.closeAfterWriting()
                            }
                        }
                    }
                }
                for _ in 0..<(round * 5) { await Task.yield() }
                await server.shutdown(grace: round % 2 == 0 ? .zero : .seconds(5))
                #expect(server.connections == 0 && began.value == ended.value)
                await clients.value
            }
        }
    }
}
