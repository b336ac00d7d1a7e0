// A thread that ends inside the calls of a stream: a handler ends it (rule 9.30), or it was cancelled before (rule 9.31).
//  - The end is reported to a stream whose handler has not returned, also if its transport had closed before, or closes in the call.
//  - No lock stays held, streams are made, and the end of a stream is reported, although the system calls of a stream are cancellation points in the C
//    library.
//  - A server's connections are all ended, too, also if handlers of them end the thread, and its listener is closed.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private func endThread() { pthread_exit(nil) }

/// What the frames of an ended thread held is leaked, which the leak detector finds, and neither sanitizer follows a thread that unwinds.
@Suite(.bounded, .tags(.threads), .enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer)) struct EndedThreadTests {
    @Test(arguments: [false, true])
    func `the end is reported to a stream whose handler has ended the loop's thread`(isSetLate: Bool) throws {
        let pair = SocketPair()
        let thread = try RunLoopThread(name: "ends")
        let trace = Trace()
        let stream = try ByteStream(adopting: pair.ours, on: thread.runLoop)
        if isSetLate {
            pair.send("hello")
            try waitUntil("the bytes have come") { stream.testsOnlyBytesHeld == 5 }
        }
        stream.onEnd { _, end in trace.add("\(end)") }
        stream.onReceive { _, _ in endThread() }
        if !isSetLate { pair.send("hello") }
        #expect(thread.join(timeout: patience))
        #expect(trace.list == ["loopEnded"])
    }

    @Test(arguments: [false, true])
    func `the end is reported to a stream whose handler closes it and then ends the loop's thread`(isSetLate: Bool) throws {
        let pair = SocketPair()
        let (thread, trace) = (try RunLoopThread(name: "ends"), Trace())
        let stream = try ByteStream(adopting: pair.ours, on: thread.runLoop)
        if isSetLate {
            pair.send("hello")
            try waitUntil("the bytes have come") { stream.testsOnlyBytesHeld == 5 }
        }
        stream.onEnd { _, end in trace.add("\(end)") }
        stream.onReceive { stream, _ in
            stream.close()
            endThread()
        }
        if !isSetLate { pair.send("hello") }
        #expect(thread.join(timeout: patience))
        #expect(trace.list == ["closed"])
    }

    /// Which handler ends its thread.
    enum EndingHandler: CaseIterable, Sendable {
        case receive, peerFinish

        func set(on stream: ByteStream, _ body: @escaping @Sendable (ByteStream) -> Void) {
            switch self {
            case .receive: stream.onReceive { stream, _ in body(stream) }
            case .peerFinish: stream.onPeerFinish(body)
            }
        }
    }

    @Test(arguments: EndingHandler.allCases)
    func `the end is reported to a stream whose handler ends the loop's thread after the transport has closed`(
        handler: EndingHandler
    ) throws {
        let (thread, trace) = (try RunLoopThread(name: "ends"), Trace())
        let (loop, link) = (thread.runLoop, MemoryLink(capacity: 100, seed: nil))
        let stream = try ByteStream(over: MemoryTransport(link, end: 0), on: loop)
        let peer = try ByteStream(over: MemoryTransport(link, end: 1), on: loop)
        peer.send("hello")
        try waitUntil("the bytes have come") { stream.testsOnlyBytesHeld == 5 }
        link.reset()
        try waitUntil("the transport has closed") { stream.core.withLock { stream.core.locked.phase == .closed } }
        // Both before the next pass, which calls the first.
        loop.perform {
            handler.set(on: stream) { _ in endThread() }
            stream.onEnd { _, _ in trace.add("end") }
        }
        #expect(thread.join(timeout: patience))
        #expect(trace.list == ["end"])
        withExtendedLifetime(peer) {}
    }

    @Test(arguments: EndingHandler.allCases)
    func `the end is reported to a stream of an ended loop whose handler ends the thread that has set it`(
        handler: EndingHandler
    ) throws {
        for hasLoop in [true, false] {
            let (stream, trace) = (try failedStream(), Trace())
            let body: @Sendable () -> Void = {
                handler.set(on: stream) { stream in
                    stream.onEnd { _, _ in trace.add("end") }
                    endThread()
                }
            }
            if hasLoop {
                let thread = try RunLoopThread(name: "ends")
                thread.runLoop.perform(body)
                #expect(thread.join(timeout: patience))
            } else {
                #expect(NativeThread.start(body) == 0)
                try waitUntil("the thread has ended") { !trace.list.isEmpty }
            }
            #expect(trace.list == ["end"])
        }
    }

    @Test func `handlers that end their thread while a server ends its connections leave none of them open`() async throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let (ending, other) = (try RunLoopThread(name: "ends"), try RunLoopThread(name: "goes on"))
        let (loop, served) = (ending.runLoop, Box(0))
        // The connections of a Unix socket go to the loops in turn. The grace passes on the first one, whose thread each of its two handlers ends.
        let server = try StreamServer(listeningOn: .unix(path: folder + "/socket"), on: [loop, other.runLoop]) { stream in
            if stream.loop === loop { stream.onEnd { _, _ in endThread() } }
            served.increment()
            _ = try? await stream.read()
        }
        var clients: [ByteStream] = []
        for count in 1...4 {
            clients.append(try await ByteStream.connect(to: server.localAddress, on: other.runLoop))
            try await suspendUntil("it is served") { served.value == count }
        }
        await server.shutdown(grace: .milliseconds(1))
        #expect(server.connections == 0)
        let hasEnded = await ending.join(timeout: patience)
        #expect(hasEnded)
        for client in clients { client.close() }
        other.stop()
        await other.join()
    }

    // What follows is in processes of their own, which are killed if a lock stays held.

    @Test func `a thread that is cancelled while it uses a stream leaves it to the others`() async {
        await #expect(processExitsWith: .success) {
            try await useWhileCancelled { stream in
                !stream.peerHasFinished && stream.send([1])
            } then: { stream, _ in
                let isSecondSent = stream.send([2])
                #expect(isSecondSent)
                stream.close()
            }
        }
    }

    @Test func `a thread that is cancelled returns from withDescriptor, and the descriptor is closed with the stream`() async {
        await #expect(processExitsWith: .success) {
            try await useWhileCancelled { stream in
                var byte: UInt8 = 0
                // A cancellation point, and there is nothing to receive.
                return stream.withDescriptor { descriptor in recv(descriptor, &byte, 1, Int32(MSG_DONTWAIT)) } == -1
            } then: { stream, peer in
                stream.close()
                try waitUntilReadable(peer, "the peer sees the end")
            }
        }
    }

    @Test func `a thread that is cancelled makes streams over sockets and pipes, which are served`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let thread = try RunLoopThread(name: "serves")
            let loop = thread.runLoop
            for ends in [connectedSockets(), openPipe()] {
                let made = plainThread { () -> ByteStream in
                    pthread_cancel(pthread_self())
                    let stream = try ByteStream(adopting: ends.0, on: loop)
                    // So that the thread ends in the usual way.
                    pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                    return stream
                }
                let stream = try made.join()
                var byte: UInt8 = 1
                let count = write(ends.1, &byte, 1)
                #expect(count == 1)
                let bytes = try await stream.read()
                #expect(bytes == [1])
                stream.close()
                close(ends.1)
            }
            thread.stop()
            await thread.join()
        }
    }

    @Test func `a loop's thread that is cancelled while it serves streams ends, and the streams with it`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let thread = try RunLoopThread(name: "ends")
            let (entered, go, trace) = (Gate(), Gate(), Trace())
            thread.runLoop.perform {
                entered.open()
                go.wait()
            }
            try await entered.waitInTask()
            // Both are ready when the loop goes on, so one of them is read after the handler of the other has returned.
            for _ in 0..<2 {
                let (ours, peer) = connectedSockets()
                let stream = try ByteStream(adopting: ours, on: thread.runLoop)
                stream.onReceive { _, _ in _ = pthread_cancel(pthread_self()) }
                stream.onEnd { _, end in trace.add("\(end)") }
                var byte: UInt8 = 1
                let count = write(peer, &byte, 1)
                #expect(count == 1)
            }
            go.open()
            let hasEnded = await thread.join(timeout: patience)
            #expect(hasEnded)
            #expect(trace.list == ["loopEnded", "loopEnded"])
        }
    }

    @Test func `the end of a stream that is closed by a thread that was cancelled is reported`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let (ours, peer) = connectedSockets()
            let thread = try RunLoopThread(name: "ends")
            let trace = Trace()
            let stream = try ByteStream(adopting: ours, on: thread.runLoop)
            stream.onReceive { stream, _ in
                pthread_cancel(pthread_self())
                stream.close()
            }
            stream.onEnd { _, end in trace.add("\(end)") }
            var byte: UInt8 = 1
            let count = write(peer, &byte, 1)
            #expect(count == 1)
            let hasEnded = await thread.join(timeout: patience)
            #expect(hasEnded)
            #expect(trace.list == ["closed"])
        }
    }

    @Test func `a thread that is cancelled while it ends the connections of a server ends all of them`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            try await withLoops(1) { loops in
                let server = try StreamServer(listeningOn: anyPort, on: loops, connectionLimit: 1) { stream in _ = try? await stream.read()
                }
                var clients: [ByteStream] = []
                for _ in 0..<3 { clients.append(try await ByteStream.connect(to: server.localAddress, on: loops[0])) }
                try await suspendUntil("one is served") { server.connections == 1 }
                let shutdown = Task { await server.shutdown(grace: .seconds(10_000)) }
                try await suspendUntil("the others wait in the server") { server.core.state.withLock { $0.parked.count } == 2 }
                let cancelled = plainThread { () -> Bool in
                    pthread_cancel(pthread_self())
                    server.core.cancelConnections()
                    // So that the thread ends in the usual way.
                    pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
                    return true
                }
                let hasReturned = try cancelled.join()
                #expect(hasReturned)
                await shutdown.value
                for client in clients { client.close() }
            }
        }
    }

    @Test func `a listener that a cancelled thread invalidates is closed`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            let thread = try RunLoopThread(name: "ends")
            let trace = Trace()
            let source = try RunLoop.SocketSource(listeningOn: anyPort) { _, _, _ in }
            let descriptor = source.descriptor
            source.onInvalidation { _ in trace.add("closed") }
            thread.runLoop.add(source)
            thread.runLoop.perform {
                pthread_cancel(pthread_self())
                source.invalidate()
            }
            let hasEnded = await thread.join(timeout: patience)
            #expect(hasEnded)
            #expect(trace.list == ["closed"])
            #expect(fcntl(descriptor, F_GETFD) == -1)
        }
    }
}

/// Calls `use` on a thread that is cancelled already, with a stream that another thread serves. It has to return true. `check` gets the stream and the
/// peer's end, and closes the stream.
private func useWhileCancelled(
    _ use: @escaping @Sendable (ByteStream) -> Bool, then check: (ByteStream, Int32) throws -> Void
) async throws {
    killLater(seconds: 300)
    let (ours, peer) = connectedSockets()
    let thread = try RunLoopThread(name: "serves")
    let stream = try ByteStream(adopting: ours, on: thread.runLoop)
    let cancelled = plainThread { () -> Bool in
        pthread_cancel(pthread_self())
        let isDone = use(stream)
        // So that the thread ends in the usual way.
        pthread_setcancelstate(Int32(PTHREAD_CANCEL_DISABLE), nil)
        return isDone
    }
    let isDone = try cancelled.join()
    #expect(isDone)
    try check(stream, peer)
    thread.stop()
    await thread.join()
    close(peer)
}
