// fork, and streams: a child leaves its parent's connections alone, whatever it does with the objects and whatever the parent's threads did.

#if os(Linux)

import CStreams
import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded, .serialized) struct ForkedStreamTests {
    enum Use: String, CaseIterable, Sendable, Codable { case lastRelease, close, closeAfterWriting, nothing }

    @Test(arguments: Use.allCases)
    func `a child that ends its use of a stream does not end the parent's connection`(use: Use) async {
        await #expect(processExitsWith: .success) { [use] in
            let thread = try RunLoopThread(name: "parent's")
            let (native, peer) = connectedSockets()
            defer { close(peer) }
            let box = Box<ByteStream?>(try ByteStream(adopting: native, on: thread.runLoop))
            try waitUntilAsleepAfterPass(thread.runLoop)
            for _ in 0..<5 {
                let end = oneForkedChild {
                    Self.apply(use, box)
                    return 0
                }
                #expect(end.status == 0, "\(use): \(end)")
            }
            var byte: UInt8 = 0
            #expect(recv(peer, &byte, 1, Int32(MSG_DONTWAIT)) == -1 && errno == EAGAIN, "the peer reads an end")
            let stream = try #require(box.value)
            stream.send([7])
            try waitUntilReadable(peer, "the parent's byte")
            #expect(recv(peer, &byte, 1, Int32(MSG_DONTWAIT)) == 1 && byte == 7)
            stream.close()
            thread.stop()
            await thread.join()
        }
    }

    @Test(arguments: [Use.lastRelease, .closeAfterWriting])
    func `a child ends its use of a stream while the parent sends`(use: Use) async {
        await #expect(processExitsWith: .success) { [use] in
            let thread = try RunLoopThread(name: "parent's")
            let (native, peer) = connectedSockets()
            defer { close(peer) }
            let box = Box<ByteStream?>(try ByteStream(adopting: native, on: thread.runLoop))
            let (isOver, stream) = (Box(false), box.value!)
            let sender = plainThread { while !isOver.value { stream.send([1]) } }
            let reader = plainThread {
                var buffer = [UInt8](repeating: 0, count: 4_096)
                while recv(peer, &buffer, buffer.count, 0) > 0 {}
            }
            for _ in 0..<30 {
                let end = oneForkedChild {
                    Self.apply(use, box)
                    return 0
                }
                #expect(end.status == 0, "\(use): \(end)")
            }
            #expect(stream.isOpen)
            isOver.value = true
            try sender.join()
            stream.close()
            thread.stop()
            await thread.join()
            try reader.join()
        }
    }

    // MARK: Every use of every state

    /// What a stream is like at the fork.
    enum State: String, CaseIterable, Sendable, Codable { case fresh, handled, paused, blocked, finished, pipes }

    /// What a child does with the objects of its parent.
    enum ChildUse: CaseIterable {
        case leave, exit, look, pause, resume, setHandlers, watchPeer, send, sendInPlace, sendMuch, finish, close, closeAfterWriting,
            release
        case serve
    }

    @Test(arguments: State.allCases)
    func `nothing that a child does with a stream reaches the peer, and no child hangs`(state: State) async {
        await #expect(processExitsWith: .success) { [state] in
            let thread = try RunLoopThread(name: "parent's")
            let (box, peer) = try Self.makeStream(state, on: thread.runLoop)
            let sent = Int(box.value!.bytesSent)
            let ends = Box<[ByteStream.End]>([])
            // The parent has used what a child uses: the runtime takes locks at the first use of a type.
            for use in ChildUse.allCases where use != .release {
                Self.apply(use, Box(try Self.makeStream(.fresh, on: thread.runLoop).0.value))
            }
            let rounds = getenv("EVENTLOOP_FORKS").flatMap { Int(String(cString: $0)) }.map { $0 / 100 } ?? 1
            for use in ChildUse.allCases + (0..<rounds - 1).flatMap({ _ in ChildUse.allCases }) {
                try waitUntilAsleepAfterPass(thread.runLoop)
                let end = oneForkedChild {
                    killLater(seconds: 60)
                    Self.apply(use, box)
                    // In a child, the leak detector does not see what the parent's threads refer to, and reports it.
                    if use == .exit && !isUnderAddressSanitizer { exit(0) }
                    return 0
                }
                // What needs the loop's thread may also say that it belongs to the parent (rule 9.10).
                let isRefused = [.resume, .watchPeer].contains(use) && end.errors.contains("belongs to the parent process")
                #expect(end.status == 0 || isRefused, "\(state), \(use): \(end)")
            }
            // The peer has what the parent has sent, and no end.
            var (count, buffer) = (0, [UInt8](repeating: 0, count: 65_536))
            let stream = try #require(box.value)
            if state != .blocked {
                while true {  // ends: the parent has sent little
                    let piece = cstreams_read(peer, state == .pipes ? 2 : 1, &buffer, buffer.count)
                    if piece <= 0 {
                        #expect(piece == (state == .finished ? 0 : -Int(EAGAIN)))
                        break
                    }
                    count += piece
                }
                #expect(count == sent)
            }
            stream.onEnd { _, end in ends.change { $0.append(end) } }
            if state != .finished { stream.send([7]) }
            stream.closeAfterWriting()
            try waitUntil("the peer has everything") {
                let piece = cstreams_read(peer, state == .pipes ? 2 : 1, &buffer, buffer.count)
                if piece > 0 { count += piece }
                return piece == 0
            }
            #expect(count == Int(stream.bytesSent) && (state == .finished || buffer.contains(7)))
            Glibc.close(peer)
            try waitUntil("the end") { !ends.value.isEmpty }
            #expect(ends.value == [.closed])
            thread.stop()
            await thread.join()
        }
    }

    /// A stream and the descriptor of its peer, which does not wait.
    private static func makeStream(_ state: State, on loop: RunLoop) throws -> (Box<ByteStream?>, Int32) {
        let peer: Int32
        let stream: ByteStream
        if state == .pipes {
            let (forth, back) = (openPipe(), openPipe())
            peer = forth.0
            stream = try ByteStream(reading: back.0, writing: forth.1, on: loop)
        } else {
            let (ours, theirs) = connectedSockets()
            peer = theirs
            stream = try ByteStream(adopting: ours, on: loop)
        }
        _ = fcntl(peer, F_SETFL, fcntl(peer, F_GETFL) | O_NONBLOCK)
        switch state {
        case .fresh, .pipes: break
        case .handled:
            stream.onReceive { _, bytes in bytes.consume(bytes.count) }
            stream.send([1, 2, 3])
        case .paused:
            stream.isReading = false
            _ = write(peer, [9, 9], 2)
        case .blocked: stream.send([UInt8](repeating: 1, count: 1 << 20))
        case .finished: stream.finishSending()
        }
        return (Box(stream), peer)
    }

    private static func apply(_ use: ChildUse, _ box: Box<ByteStream?>) {
        guard let stream = box.value else { return }
        switch use {
        case .leave, .exit: break
        case .look:
            _ = (stream.end, stream.bytesSent, stream.bytesWaiting, stream.peerHasFinished, stream.peerCredentials, stream.isReading)
        case .pause: stream.isReading = false
        case .resume: stream.isReading = true
        case .setHandlers:
            stream.onRoom { _ in }
            stream.onEnd { _, _ in }
        case .watchPeer: stream.onPeerFinish { _ in }
        case .send: stream.send([8])
        case .sendInPlace: withUnsafeBytes(of: UInt64(8)) { _ = stream.send($0) }
        case .sendMuch: stream.send([UInt8](repeating: 8, count: 100_000))
        case .finish: stream.finishSending()
        case .close: stream.close()
        case .closeAfterWriting: stream.closeAfterWriting()
        case .release: box.value = nil
        case .serve: try! serve()
        }
    }

    /// A child has loops and streams of its own.
    private static func serve() throws {
        let thread = try RunLoopThread(name: "child's")
        let (ours, peer) = connectedSockets()
        let stream = try ByteStream(adopting: ours, on: thread.runLoop)
        stream.onReceive { stream, bytes in
            stream.send(bytes.take(bytes.count))
            stream.closeAfterWriting()
        }
        _ = write(peer, [5], 1)
        try waitUntilReadable(peer, "the echo")
        var byte: UInt8 = 0
        precondition(read(peer, &byte, 1) == 1 && byte == 5)
        Glibc.close(peer)
        thread.stop()
        thread.join()
    }

    private static func apply(_ use: Use, _ box: Box<ByteStream?>) {
        switch use {
        case .lastRelease: box.value = nil
        case .close: box.value?.close()
        case .closeAfterWriting: box.value?.closeAfterWriting()
        case .nothing: break
        }
    }
}

#endif
