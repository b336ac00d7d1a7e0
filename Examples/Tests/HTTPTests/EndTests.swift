// Rules proved here (docs/http.md): time, clients that go, and the end of a server.
// - A request that takes too long is a 408, and an idle connection is closed. A handler has no limit.
// - A handler is cancelled when its client goes, and not when it only half-closes.
// - shutdown answers what has been received, closes idle connections, and returns when every handler has returned.

import EventLoop
import EventLoopStreams
import HTTPTypes
import TestSupport
import Testing

@testable import EventLoopHTTP

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Calls `body` off the pool, with a server that answers with the path.
private func inManualTime(_ body: @escaping @Sendable (HTTPServer, RunLoop, RunLoop.ManualClock) throws -> Void) async throws {
    let clock = RunLoop.ManualClock()
    let thread = try RunLoopThread(name: "manual", setup: { $0.use(clock) })
    try await withFolder { folder in
        let server = try HTTPServer(listeningOn: .unix(path: folder + "/s"), on: [thread.runLoop]) { .text($0.path) }
        try await elsewhere { try body(server, thread.runLoop, clock) }
        await server.shutdown(grace: .zero)
    }
    thread.stop()
    await thread.join()
}

/// Is always ready until the kernel takes no more, and ends with an element that waits in the stream.
private struct ElementsUntilFull: AsyncSequence, AsyncIteratorProtocol, Sendable {
    let stream: ByteStream
    let ended: Gate
    var isFull = false

    func makeAsyncIterator() -> Self { self }
    mutating func next() async throws -> [UInt8]? {
        if isFull {
            ended.open()
            return nil
        }
        // What a task has written waits for the end of the pass.
        for _ in 0..<10 where stream.bytesWaiting > 0 { await Task.yield() }
        isFull = stream.bytesWaiting > 0
        return [UInt8](repeating: 1, count: isFull ? 200_000 : 8_192)
    }
}

@Suite(.bounded, .tags(.lifetimes)) struct EndTests {
    // MARK: Time

    @Test func `a request that takes too long is a 408, and a connection without one is closed`() async throws {
        var options = HTTPServer.Options()
        (options.requestTimeout, options.idleTimeout) = (.milliseconds(100), patience)
        try await withServer(options: options, respond: { _ in .text("x") }) { server in
            for text in ["G", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nx"] {
                let client = try Client(server)
                try client.send(text)
                #expect(try client.answer().status == 408)
                #expect(try client.isClosed())
            }
        }
        (options.requestTimeout, options.idleTimeout) = (patience, .milliseconds(200))
        try await withServer(options: options, respond: { _ in .text("x") }) { server in
            let idle = try Client(server)
            #expect(try idle.isClosed())
            // On a busy machine, the connection may be closed before the request comes.
            var (used, status): (Client?, Int?) = (nil, nil)
            try waitUntil("a request comes in time") {
                used = try Client(server)
                status = try? used?.ask(get()).status
                return status != nil
            }
            #expect(status == 200)
            #expect(try used?.isClosed() == true)
        }
    }

    @Test func `the timeouts pass in the loop's time`() async throws {
        try await inManualTime { server, _, clock in
            let (idle, slow) = (try Client(to: server.localAddress), try Client(to: server.localAddress))
            for client in [idle, slow] { #expect(try client.ask(get("/first")).text == "/first") }
            try slow.send("GET /second")
            // The loop has read it when it has answered another client that came later.
            _ = try Client(to: server.localAddress).ask(get())
            clock.advance(by: .seconds(29))
            try slow.send(" HTTP/1.1\r\nHost: t\r\n\r\n")
            #expect(try slow.answer().text == "/second")
            try slow.send("GET /third")
            _ = try Client(to: server.localAddress).ask(get())
            clock.advance(by: .seconds(32))
            #expect(try slow.answer().status == 408)
            #expect(try idle.isClosed())
        }
    }

    @Test func `a request that has come while the loop was busy is answered, although its connection's time is over`() async throws {
        try await inManualTime { server, loop, clock in
            let (idle, late) = (try Client(to: server.localAddress), try Client(to: server.localAddress))
            for client in [idle, late] { #expect(try client.ask(get("/first")).text == "/first") }
            let (isBusy, mayGoOn) = (Gate(), Gate())
            loop.perform {
                isBusy.open()
                mayGoOn.wait()
            }
            isBusy.wait()
            try late.send(get("/second"))
            clock.advance(by: .seconds(65))
            mayGoOn.open()
            #expect(try late.answer().text == "/second")
            #expect(try idle.isClosed())
        }
    }

    @Test func `half of an empty line begins no request`() async throws {
        var options = HTTPServer.Options()
        options.requestTimeout = .milliseconds(50)
        options.idleTimeout = .milliseconds(400)
        try await withServer(options: options, respond: { _ in .text("x") }) { server in
            let (closed, goesOn) = (try Client(server), try Client(server))
            try closed.send("\r")
            #expect(try closed.isClosed())
            goesOn.trySend([13])
            goesOn.finishSending()
            #expect(try goesOn.isClosed())
        }
    }

    @Test func `a preparation that takes too long ends with its connection`() async throws {
        var options = HTTPServer.Options()
        options.requestTimeout = .milliseconds(50)
        let sawTheEnd = Gate()
        options.prepareConnection = { stream in
            try await suspendUntil("the stream ends") { !stream.isOpen }
            sawTheEnd.open()
        }
        try await withServer(options: options, respond: { _ in .text("x") }) { server in
            let client = try Client(server)
            try client.send(get())
            sawTheEnd.wait()
            _ = try client.rest()
        }
    }

    @Test func `shutdown waits a second for a preparation, and not longer`() async throws {
        var options = HTTPServer.Options()
        let (begun, sawTheEnd) = (Gate(), Gate())
        options.prepareConnection = { stream in
            begun.open()
            try await suspendUntil("the stream ends") { !stream.isOpen }
            sawTheEnd.open()
        }
        let thread = RunningLoop()
        let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop], options: options) { _ in .text("x") }
        let client = try Client(server)
        try await elsewhere { begun.wait() }
        await server.shutdown(grace: patience)
        try await elsewhere { sawTheEnd.wait() }
        client.close()
        try thread.end()
    }

    @Test func `bytes that come one by one do not extend a request's time`() async throws {
        var options = HTTPServer.Options()
        options.requestTimeout = .milliseconds(200)
        try await withServer(options: options, respond: { _ in .text("x") }) { server in
            let client = try Client(server)
            let end = Box(false)
            let descriptor = client.descriptor
            let sender = plainThread {
                // Ends when the test says so: the server may have closed the connection before.
                while !end.value {
                    Glibc.send(descriptor, "a", 1, Int32(MSG_NOSIGNAL))
                    usleep(10_000)
                }
            }
            #expect(try client.answer().status == 408)
            end.value = true
            try sender.join()
        }
    }

    @Test func `a handler may take longer than all timeouts`() async throws {
        var options = HTTPServer.Options()
        (options.requestTimeout, options.idleTimeout) = (.milliseconds(50), .milliseconds(50))
        let begun = Box(0)
        let respond: @Sendable (Request) async throws -> Response = { _ in
            begun.increment()
            try await Task.sleep(for: .milliseconds(300))
            return .text("late")
        }
        try await withServer(options: options, respond: respond) { server in
            // On a busy machine, the connection may be closed before the request comes.
            var text: String?
            try waitUntil("a request comes in time") {
                text = try? Client(server).ask(get()).text
                return begun.value > 0
            }
            #expect(text == "late")
        }
    }

    @Test func `a client that takes nothing of its answer is cut off`() async throws {
        var options = HTTPServer.Options()
        options.idleTimeout = .milliseconds(200)
        let respond: @Sendable (Request) async throws -> Response = { _ in
            Response(body: .bytes([UInt8](repeating: 1, count: 20_000_000)))
        }
        try await withServer(options: options, respond: respond) { server in
            let client = try Client(server, receiveBuffer: 8_192)
            try client.send(get())
            try waitUntil("the connection ends") { server.connections == 0 }
        }
    }

    // The time of an idle connection began when the answer was queued.
    @Test func `a client that takes its answer slowly is not idle, and gets another answer`() async throws {
        let size = 20_000_000
        let respond: @Sendable (Request) async throws -> Response = { request in
            request.path == "/large" ? Response(body: .bytes([UInt8](repeating: 1, count: size))) : .text("small")
        }
        let clock = RunLoop.ManualClock()
        try await withServer(clock: clock, respond: respond) { server in
            let client = try Client(server, receiveBuffer: 8_192)
            try client.send(get("/large"))
            for _ in 0..<4 {
                // More than the kernel holds.
                try client.receive(atLeast: 4_500_000)
                try waitUntil("the loop has nothing to do") { server.core.hosts[0].loop.isWaiting }
                clock.advance(by: .seconds(40))
            }
            try client.send(get("/small"))
            #expect(try client.answer().body.count == size)
            #expect(try client.answer().text == "small")
        }
    }

    /// The handlers wait until everything has come. So the stream has the client's end before the large answer begins.
    @Test func `a client that half-closes behind its requests and takes nothing is cut off, and others are served`() async throws {
        var options = HTTPServer.Options()
        options.idleTimeout = .milliseconds(500)
        let clock = RunLoop.ManualClock()
        let (hasFinished, begun) = (Box(false), Box(0))
        let large = [UInt8](repeating: 1, count: 20_000_000)
        let respond: @Sendable (Request) async throws -> Response = { request in
            try await suspendUntil("the clients have half-closed") { hasFinished.value }
            if request.path != "/large" { return .text("small") }
            begun.increment()
            return Response(body: .bytes(large))
        }
        try await withServer(options: options, clock: clock, respond: respond) { server in
            let small = get("/small")
            let clients = try (0..<4).map { _ in
                let client = try Client(server, receiveBuffer: 8_192)
                try client.send(small + small + small + get("/large") + small + small)
                client.finishSending()
                return client
            }
            hasFinished.value = true
            try waitUntil("the large answers begin") { begun.value == 4 }
            try waitUntil("the connections end") {
                if server.core.hosts[0].loop.isWaiting { clock.advance(by: .milliseconds(100)) }
                return server.connections == 0
            }
            let answer = try Client(server).ask(small)
            #expect(answer.text == "small")
            for client in clients { client.close() }
        }
    }

    @Test func `a loop ends while handlers run for clients that have half-closed behind their requests`() async throws {
        let (hasFinished, begun) = (Box(false), Box(0))
        let thread = RunningLoop()
        let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { request in
            try await suspendUntil("the clients have half-closed") { hasFinished.value }
            if request.path == "/last" {
                begun.increment()
                await suspendUntilCancelled()
            }
            return .text("x")
        }
        try await elsewhere {
            let clients = try (0..<4).map { _ in
                let client = try Client(server)
                try client.send(get() + get() + get() + get("/last"))
                client.finishSending()
                return client
            }
            hasFinished.value = true
            try waitUntil("the last handlers run") { begun.value == 4 }
            try thread.end()
            for client in clients { client.close() }
        }
        await server.shutdown()
        #expect(server.connections == 0)
    }

    // MARK: Clients that go

    /// A handler that waits until it is cancelled, and what the client does meanwhile.
    private func checkCancellation(
        address: RunLoop.SocketAddress = .ipv4(host: "127.0.0.1", port: 0), _ leave: @escaping @Sendable (Client) -> Void
    ) async throws {
        let (begun, cancelled) = (Gate(), Gate())
        let respond: @Sendable (Request) async throws -> Response = { request in
            begun.open()
            await suspendUntilCancelled()
            cancelled.open()
            throw CancellationError()
        }
        try await withServer(address: address, respond: respond) { server in
            let client = try Client(server)
            try client.send(get())
            begun.wait()
            leave(client)
            cancelled.wait()
            try waitUntil("the connection ends") { server.connections == 0 }
        }
    }

    @Test func `a handler is cancelled when its client resets the connection`() async throws { try await checkCancellation { $0.reset() } }

    @Test func `a handler is cancelled when its client closes the connection`() async throws { try await checkCancellation { $0.close() } }

    @Test func `a handler is cancelled when its client closes a Unix socket`() async throws {
        try await withFolder { folder in try await checkCancellation(address: .unix(path: folder + "/s")) { $0.close() } }
    }

    @Test func `a handler is known as one until it returns, although its client has gone`() async throws {
        let begun = Gate()
        let (server, isKnown) = (Box<HTTPServer?>(nil), Box<Bool?>(nil))
        let respond: @Sendable (Request) async throws -> Response = { _ in
            begun.open()
            await suspendUntilCancelled()
            // `shutdown` traps if that is true: it would wait for this handler for ever.
            isKnown.value = server.value?.core.isRespondingInCurrentTask
            return .text("x")
        }
        try await withServer(respond: respond) { made in
            server.value = made
            let client = try Client(made)
            try client.send(get())
            begun.wait()
            client.close()
            try waitUntil("the handler has asked") { isKnown.value != nil }
            #expect(isKnown.value == true)
            try waitUntil("the server forgets the connection") { made.core.hosts.allSatisfy { $0.connections.isEmpty } }
        }
        server.value = nil
    }

    @Test func `a handler is cancelled when its client half-closes first, and then goes`() async throws {
        try await checkCancellation { client in
            client.finishSending()
            usleep(100_000)
            client.close()
        }
    }

    #if os(Linux)
    /// Both come in one segment, and the loop may learn of the end before it reads the request.
    @Test func `a handler is cancelled when its request has come together with its client's end`() async throws {
        let cancelled = Box(0)
        let respond: @Sendable (Request) async throws -> Response = { request in
            if request.path == "/last" {
                await suspendUntilCancelled()
                cancelled.increment()
            } else {
                // So long that the client is watched.
                try await Task.sleep(for: .milliseconds(200))
            }
            return .text("x")
        }
        try await withServer(respond: respond) { server in
            let clients = try (0..<5).map { _ in try Client(server) }
            for client in clients { try client.send(get()) }
            for client in clients {
                #expect(try client.answer().status == 200)
                let last = Array(get("/last").utf8)
                let count = Glibc.send(client.descriptor, last, last.count, Int32(MSG_MORE) | Int32(MSG_NOSIGNAL))
                #expect(count == last.count)
                client.close()
            }
            try waitUntil("the last handlers are cancelled") { cancelled.value == 5 }
        }
    }
    #endif

    @Test func `the sequence of an answer ends when its client goes`() async throws {
        let ended = Gate()
        let respond: @Sendable (Request) async throws -> Response = { _ in
            let (stream, continuation) = AsyncThrowingStream<[UInt8], any Error>.makeStream()
            continuation.yield([1])
            continuation.onTermination = { _ in ended.open() }
            return Response(body: .sequence(stream))
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            try client.send(get())
            try client.receive()
            client.reset()
            ended.wait()
        }
    }

    @Test func `a client that half-closes is not taken for one that has gone`() async throws {
        let (stream, mayEnd) = (Box<ByteStream?>(nil), Box(false))
        var options = HTTPServer.Options()
        options.prepareConnection = { stream.value = $0 }
        let respond: @Sendable (Request) async throws -> Response = { _ in
            try await suspendUntil("the client was asked") { mayEnd.value }
            return .text("still there")
        }
        try await withServer(options: options, respond: respond) { server in
            let client = try Client(server)
            try client.send(get())
            client.finishSending()
            // It is asked whether it is still there, with what a client ignores.
            #expect(try client.answer().status == 100)
            // By the kernel as well, and a network that is away for some seconds does not end the connection.
            var (count, size): (Int32, socklen_t) = (0, 4)
            let code = stream.value?.withDescriptor { getsockopt($0, Int32(IPPROTO_TCP), TCP_KEEPCNT, &count, &size) }
            #expect(code == 0 && count == 60)
            mayEnd.value = true
            #expect(try client.answer().text == "still there")
        }
        stream.value = nil
    }

    /// The loop is busy meanwhile. It learns first of the room for the last bytes, and then of the client's end.
    @Test func `a client of HTTP 1.0 that half-closes while its answer's end is sent gets all of it`() async throws {
        let (stream, ended) = (Box<ByteStream?>(nil), Gate())
        var options = HTTPServer.Options()
        options.prepareConnection = { stream.value = $0 }
        let respond: @Sendable (Request) async throws -> Response = { _ in
            // So long that the client is watched.
            try await Task.sleep(for: .milliseconds(200))
            return Response(body: .sequence(ElementsUntilFull(stream: stream.value!, ended: ended)))
        }
        try await withServer(options: options, respond: respond) { server in
            let client = try Client(server, receiveBuffer: 8_192)
            try client.send("GET / HTTP/1.0\r\n\r\n")
            ended.wait()
            let (isBusy, mayGoOn) = (Gate(), Gate())
            defer { mayGoOn.open() }
            server.core.hosts[0].loop.perform {
                isBusy.open()
                mayGoOn.wait()
            }
            isBusy.wait()
            let (sent, waiting) = (Int(stream.value!.bytesSent), stream.value!.bytesWaiting)
            try client.receive(atLeast: sent)
            client.finishSending()
            try waitUntil("the server's kernel has the end") { stream.value!.peerHasFinished }
            mayGoOn.open()
            while try client.receive() {}  // ends: with the connection; a reset is thrown
            #expect(try client.rest().count == sent + waiting)
        }
        stream.value = nil
    }

    @Test func `a client that leaves is no warning`() async throws {
        HeardWarnings.begin()
        let (begun, left) = (Box(0), Box(false))
        try await withFolder { folder in
            makeFile(folder + "/large", size: 50_000_000)
            let respond: @Sendable (Request) async throws -> Response = { request in
                begun.change { $0 += 1 }
                if request.path == "/leaver/error" {
                    await suspendUntilCancelled()
                    throw ClientError(description: "the client has left")
                }
                try await suspendUntil("the client has left") { left.value }
                switch request.path {
                case "/leaver/file": return Response(body: .file(path: folder + "/large"))
                case "/leaver/bytes": return Response(body: .bytes([UInt8](repeating: 1, count: 10_000_000)))
                default: return Response(body: .sequence(AsyncThrowingStream { [UInt8](repeating: 1, count: 100_000) }))
                }
            }
            try await withServer(respond: respond) { server in
                let clients = try ["file", "bytes", "sequence", "error"].map { name in
                    let client = try Client(server)
                    try client.send(get("/leaver/" + name))
                    return client
                }
                try waitUntil("the handlers run") { begun.value == 4 }
                for client in clients { client.reset() }
                left.value = true
                try waitUntil("the connections end") { server.connections == 0 }
            }
        }
        #expect(HeardWarnings.messages(about: "/leaver/").map(\.message) == [])
    }

    // MARK: The end of the server

    @Test func `a handler that awaits shutdown is told not to`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let server = Box<HTTPServer?>(nil)
            let thread = RunningLoop()
            server.value = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { _ in
                await server.value?.shutdown()
                return .text("x")
            }
            let client = try Client(server.value!)
            _ = try client.ask(get())
        }
        let text = String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
        #expect(text.contains("shut the server down in another task"), "\(text)")
    }

    @Test func `a handler shuts its server down in another task`() async throws {
        let (server, end) = (Box<HTTPServer?>(nil), Gate())
        let thread = RunningLoop()
        server.value = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { _ in
            Task {
                await server.value?.shutdown()
                end.open()
            }
            return .text("the last one")
        }
        try await elsewhere {
            let client = try Client(server.value!)
            #expect(try client.ask(get()).text == "the last one")
            client.close()
            end.wait()
        }
        server.value = nil
        try thread.end()
    }

    /// The shutdown begins between the answer to a request and the delivery of the next one, which has been received with it.
    @Test func `a request that waits in the stream when the shutdown begins is answered`() async throws {
        let server = Box<HTTPServer?>(nil)
        let thread = RunningLoop()
        server.value = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { request in
            if request.path == "/1" { server.value?.core.drain() }
            return .text(request.path)
        }
        try await elsewhere {
            let client = try Client(server.value!)
            try client.send(get("/1") + get("/2"))
            for path in ["/1", "/2"] { #expect(try client.answer().text == path) }
            #expect(try client.isClosed())
        }
        await server.value?.shutdown()
        server.value = nil
        try thread.end()
    }

    /// 1. A client has sent two requests, and the first is with its handler.
    /// 2. The shutdown begins.
    /// 3. The client sends more, and would go on as long as it gets answers.
    @Test func `a client that sends without pause gets its last answer to what had come before the shutdown`() async throws {
        let (begun, mayEnd) = (Gate(), Box(false))
        let respond: @Sendable (Request) async throws -> Response = { request in
            if request.path == "/1" {
                begun.open()
                try await suspendUntil("the test goes on") { mayEnd.value }
            }
            return .text(request.path)
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            try client.send(get("/1") + get("/2"))
            begun.wait()
            let hasDrained = Gate()
            server.core.drain()
            server.core.hosts[0].loop.perform { hasDrained.open() }
            hasDrained.wait()
            for number in 3...5 { try client.send(get("/\(number)")) }
            mayEnd.value = true
            let first = try client.answer()
            #expect(first.text == "/1" && first["connection"] == nil)
            let last = try client.answer()
            #expect(last.text == "/2" && last["connection"] == "close")
            #expect(try client.isClosed())
        }
    }

    @Test func `shutdown answers what has been received, and closes idle connections`() async throws {
        let (begun, mayEnd) = (Box(0), Box(false))
        let thread = RunningLoop()
        let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { request in
            if request.path == "/slow" {
                begun.change { $0 += 1 }
                try await suspendUntil("the test goes on") { mayEnd.value }
            }
            return .text(request.path)
        }
        try await elsewhere {
            let (slow, idle, pipelined) = (try Client(server), try Client(server), try Client(server))
            #expect(try idle.ask(get("/idle")).text == "/idle")
            try slow.send(get("/slow"))
            try pipelined.send(get("/slow") + get("/behind"))
            try waitUntil("both handlers run") { begun.value == 2 }
            let (end, hasEnded) = (Gate(), Box(false))
            Task {
                await server.shutdown()
                hasEnded.value = true
                end.open()
            }
            #expect(try idle.isClosed())
            idle.close()
            // A process that another test starts has a copy of the listener until it executes its program.
            try waitUntil("nobody listens") { (try? Client(server)) == nil }
            #expect(!hasEnded.value)
            mayEnd.value = true
            let answer = try slow.answer()
            #expect(answer.text == "/slow" && answer["connection"] == "close")
            #expect(try slow.isClosed())
            slow.close()
            #expect(try pipelined.answer().text == "/slow")
            let last = try pipelined.answer()
            #expect(last.text == "/behind" && last["connection"] == "close")
            #expect(try pipelined.isClosed())
            pipelined.close()
            end.wait()
        }
        #expect(server.connections == 0)
        try thread.end()
    }

    @Test func `the first request of a connection may come within a second after the shutdown has begun`() async throws {
        try await inManualTime { server, loop, clock in
            let (late, silent) = (try Client(to: server.localAddress), try Client(to: server.localAddress))
            try waitUntil("both connections are served") { server.core.hosts[0].connections.count == 2 }
            let hasBegun = Gate()
            server.core.drain()
            loop.perform { hasBegun.open() }
            hasBegun.wait()
            clock.advance(by: .milliseconds(900))
            let answer = try late.ask(get("/late"))
            #expect(answer.text == "/late" && answer["connection"] == "close")
            #expect(try late.isClosed())
            clock.advance(by: .seconds(2))
            #expect(try silent.isClosed())
        }
    }

    @Test func `shutdown answers the connections that wait in the kernel's queue`() async throws {
        var options = HTTPServer.Options()
        options.connectionLimit = 1
        let (begun, mayEnd) = (Gate(), Box(false))
        let thread = RunningLoop()
        let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop], options: options) { request in
            if request.path == "/first" {
                begun.open()
                try await suspendUntil("the test goes on") { mayEnd.value }
            }
            return .text(request.path)
        }
        try await elsewhere {
            let first = try Client(server)
            try first.send(get("/first"))
            begun.wait()
            let waiting = try (0..<5).map { _ in try Client(server) }
            for (number, client) in waiting.enumerated() { try client.send(get("/\(number)")) }
            let end = Gate()
            Task {
                await server.shutdown()
                end.open()
            }
            try waitUntil("nobody listens") { (try? Client(server)) == nil }
            mayEnd.value = true
            #expect(try first.answer().text == "/first")
            first.close()
            for (number, client) in waiting.enumerated() {
                #expect(try client.answer().text == "/\(number)")
                client.close()
            }
            end.wait()
        }
        try thread.end()
    }

    @Test func `after the grace period handlers are cancelled, and shutdown waits for them`() async throws {
        let (begun, returned) = (Gate(), Box(false))
        let thread = RunningLoop()
        let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { _ in
            begun.open()
            await suspendUntilCancelled()
            returned.value = true
            return .text("nobody hears this")
        }
        try await elsewhere {
            let client = try Client(server)
            try client.send(get())
            begun.wait()
            let end = Gate()
            Task {
                await server.shutdown(grace: .milliseconds(50))
                end.open()
            }
            end.wait()
            #expect(returned.value && server.connections == 0)
        }
        try thread.end()
    }

    @Test func `a server's end leaves nothing of it`() async throws {
        final class Owned: Sendable {}
        weak var weakly: Owned?
        let thread = RunningLoop()
        do {
            let owned = Owned()
            weakly = owned
            let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop]) { _ in
                withExtendedLifetime(owned) { .text("x") }
            }
            try await elsewhere {
                let client = try Client(server)
                #expect(try client.ask(get()).status == 200)
            }
            await server.shutdown()
        }
        try await suspendUntil("the handler is released") { weakly == nil }
        try thread.end()
    }

    @Test func `a server on two loops serves on both, and the end of a loop ends its connections`() async throws {
        let loops = Locked<Set<ObjectIdentifier>>([])
        let threads = (0..<2).map { _ in RunningLoop() }
        let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: threads.map(\.loop)) { _ in
            loops.withLock { _ = $0.insert(ObjectIdentifier(RunLoop.current)) }
            return .text("x")
        }
        try await elsewhere {
            try waitUntil("both loops have served") {
                let client = try Client(server)
                #expect(try client.ask(get()).status == 200)
                return loops.withLock { $0.count } == 2
            }
        }
        #expect(loops.withLock { $0 } == Set(threads.map { ObjectIdentifier($0.loop) }))
        await server.shutdown()
        for thread in threads { try thread.end() }
    }

    @Test func `adopted listeners are closed, also when the initialiser throws`() async throws {
        let thread = RunningLoop()
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        #expect(listen(listener, 10) == 0)
        let server = try HTTPServer(adopting: [listener], on: [thread.loop]) { _ in .text("adopted") }
        try await elsewhere {
            let client = try Client(server)
            #expect(try client.ask(get()).text == "adopted")
        }
        await server.shutdown()
        let (one, other) = connectedSockets()
        #expect(throws: RunLoop.SourceError.self) { try HTTPServer(adopting: [one], on: [thread.loop]) { _ in .text("x") } }
        try await elsewhere { #expect(otherEndIsClosed(other)) }
        close(other)
        try thread.end()
    }
}
