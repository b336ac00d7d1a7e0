// Rules 27.7 and 27.17, with a layer that does what a script says: calls during a handshake, writes that want input first, answers that nobody
// reads, and a layer that is refused.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.memory, .threads)) struct LayerTests {
    private func connected(_ loop: RunLoop) throws -> (SocketPair, ByteStream) {
        let pair = SocketPair()
        return (pair, try ByteStream(adopting: pair.ours, on: loop))
    }

    private func withLayer(_ loop: RunLoop) async throws -> (SocketPair, ByteStream) {
        let (pair, stream) = try connected(loop)
        pair.send("H")
        try await stream.install(ScriptedLayer())
        return (pair, stream)
    }

    @Test func `a read and closeAfterWriting during a handshake use no memory that is gone`() async throws {
        try await withTestLoop { loop in
            for _ in 0..<20 {
                let (pair, stream) = try connected(loop)
                let handshake = Task { try await stream.install(ScriptedLayer()) }
                try await suspendUntil("the handshake begins") { stream.layer != nil }
                let read = Task { try await stream.read(exactly: 4_096) }
                try await suspendUntil("it reads") { stream.testsOnlyWaiters.readers == 1 }
                stream.closeAfterWriting()
                // The end of the handshake and data at once: the stream closes while the bytes are on their way to the reader.
                pair.send(Array("H".utf8) + [UInt8](repeating: 1, count: 8_000))
                try await handshake.value
                await #expect(throws: (any Error).self) { try await read.value }
            }
        }
    }

    @Test func `a write that the layer refuses before more has come is repeated`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try await withLayer(loop)
            pair.send("W-")
            #expect(try await stream.read() == Array("-".utf8))
            try await stream.write("hello")
            let finished = Task { try await stream.finishWriting() }
            // The program has paused: the layer gets its bytes all the same.
            stream.isReading = false
            try await suspendUntil("it waits") { stream.testsOnlyWaiters.finishers == 1 }
            #expect(pair.receivedBytes() == [])
            pair.send("w")
            try await finished.value
            #expect(pair.received() == "helloE")
        }
    }

    @Test func `a task that has waited for input of the layer goes on before the handler is called, which may wait for it`() throws {
        try inManualTime { loop, _, trace in
            let (pair, stream) = try connected(loop)
            pair.send("H")
            Task(executorPreference: loop) {
                try await stream.install(ScriptedLayer())
                trace.add("installed")
            }
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            stream.onReceive { stream, bytes in
                let text = String(decoding: bytes.take(bytes.count), as: UTF8.self)
                for _ in 0..<8 { _ = stream.loop.run(for: .zero) }
                trace.add(text)
            }
            pair.send("W-")
            _ = loop.run(for: .zero)
            Task(executorPreference: loop) {
                try await stream.finishWriting()
                trace.add("finished")
            }
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(trace.take() == "installed -")
            pair.send("w+")
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(trace.take() == "finished +")
            stream.close()
        }
    }

    @Test func `a handler that runs its loop until its bytes are sent does not wait for ever if the layer wants input first`() throws {
        try inManualTime { loop, _, trace in
            let (pair, stream) = try connected(loop)
            pair.send("H")
            Task(executorPreference: loop) { try await stream.install(ScriptedLayer()) }
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            stream.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                stream.send("hello")
                pair.send("w+")
                for _ in 0..<8 { _ = stream.loop.run(for: .zero) }
                trace.add(pair.received() ?? "the end")
                // What has come meanwhile is for the next call.
                stream.onReceive { _, bytes in trace.add(String(decoding: bytes.take(bytes.count), as: UTF8.self)) }
            }
            pair.send("W-")
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(trace.take() == "hello +")
            stream.close()
        }
    }

    @Test func `a layer that waits for input keeps no loop busy, although the socket has room`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try await withLayer(loop)
            stream.send([UInt8](repeating: 1, count: 4 << 20))
            // From now on the layer takes nothing, and the socket is full.
            pair.send("W-")
            #expect(try await stream.read() == Array("-".utf8))
            var isQuiet = 0
            try await suspendUntil("all that the layer has taken has come") {
                isQuiet = pair.receivedBytes() == [] ? isQuiet + 1 : 0
                return isQuiet > 20
            }
            let passes = loop.statistics.passes
            for _ in 0..<10 { try await loop.performAsync {} }
            try waitUntilAsleep(loop)
            #expect(loop.statistics.passes - passes < 100)
            stream.close()
        }
    }

    @Test func `finishWriting does not succeed when the layer drops bytes`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try await withLayer(loop)
            pair.send("W-")
            #expect(try await stream.read() == Array("-".utf8))
            try await stream.write("hello")
            pair.send("X")
            await #expect(throws: (any Error).self) { try await stream.finishWriting() }
            #expect(pair.received() != "helloE")
        }
    }

    @Test(arguments: [true, false])
    func `a write that waits for input of the layer fails when the peer ends before`(endsBefore: Bool) async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try await withLayer(loop)
            pair.send("W-")
            #expect(try await stream.read() == Array("-".utf8))
            if endsBefore {
                pair.send("E")
                #expect(try await stream.read() == nil)
            }
            try? await stream.write("hello")
            let finished = Task { try await stream.finishWriting() }
            if !endsBefore {
                try await suspendUntil("it waits") { stream.testsOnlyWaiters.finishers == 1 }
                pair.send("E")
            }
            await #expect(throws: (any Error).self) { try await finished.value }
        }
    }

    @Test func `a peer that asks for answers behind our end loses nothing`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try await withLayer(loop)
            try await stream.finishWriting()
            #expect(pair.received() == "E")
            pair.send("KKdataE")
            #expect(try await stream.read(exactly: 4) == Array("data".utf8))
            #expect(try await stream.read() == nil)
            #expect(stream.end == .endOfStream)
            #expect(pair.receivedBytes() == nil)
        }
    }

    @Test func `the answers of a layer that a peer does not read are limited`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try await withLayer(loop)
            let ended = Box<ByteStream.End?>(nil)
            stream.onReceive { _, bytes in bytes.consume(bytes.count) }
            stream.onEnd { _, end in ended.value = end }
            let largest = Box(0)
            let piece = [UInt8](repeating: UInt8(ascii: "K"), count: 1_000)
            try await suspendUntil("the peer is cut off") {
                _ = piece.withUnsafeBytes { send(pair.peer, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
                largest.change { [waiting = stream.bytesWaiting] in $0 = max($0, waiting) }
                return ended.value != nil
            }
            #expect(largest.value < 4 << 20)
            guard case .failed(.system(_, ENOBUFS)) = ended.value else {
                Issue.record("\(ended.value as Any)")
                return
            }
        }
    }

    @Test func `a task that waits gets the bytes that come with what ends the stream`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try await withLayer(loop)
            // The peer takes none of it, so the answers wait.
            stream.send([UInt8](repeating: 1, count: 4 << 20))
            let read = Task { try await stream.read() }
            try await suspendUntil("it reads") { stream.testsOnlyWaiters.readers == 1 }
            pair.send(Array("data".utf8) + [UInt8](repeating: UInt8(ascii: "K"), count: 1_000))
            #expect(try await read.value == Array("data".utf8))
            await #expect(throws: RunLoop.SourceError.self) { try await stream.read() }
        }
    }

    @Test func `after a layer was refused nothing is read in the clear`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try connected(loop)
            try await stream.finishWriting()
            await #expect(throws: StreamError.closed) { try await stream.install(ScriptedLayer()) }
            _ = [UInt8]("clear".utf8).withUnsafeBytes { send(pair.peer, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            await #expect(throws: StreamError.closed) { try await stream.read() }
        }
    }

    @Test func `what was written before a refused layer is sent`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try connected(loop)
            let bytes = [UInt8](repeating: 7, count: 4 << 20)
            stream.send(bytes)
            stream.finishSending()
            await #expect(throws: StreamError.closed) { try await stream.install(ScriptedLayer()) }
            pair.send("clear")
            let received = Box(0)
            try await suspendUntil("all of it has come") {
                received.change { [count = pair.receivedBytes()?.count ?? 0] in $0 += count }
                return received.value == bytes.count
            }
            await #expect(throws: StreamError.closed) { try await stream.read() }
        }
    }

    @Test func `a layer that is installed while a handler has the input begins when it returns`() async throws {
        try await withTestLoop { loop in
            let (pair, stream) = try connected(loop)
            let isIn = Gate()
            let goesOn = Gate()
            let received = Box("")
            stream.onReceive { _, bytes in
                if received.value.isEmpty {
                    bytes.consume(1)
                    received.value = "-"
                    isIn.open()
                    goesOn.wait()
                    return
                }
                let text = String(decoding: bytes.take(bytes.count), as: UTF8.self)
                received.change { $0 += text }
            }
            pair.send("xHplain")
            try await isIn.waitInTask()
            let handshake = Task { try await stream.install(ScriptedLayer()) }
            try await suspendUntil("it waits") { stream.layer != nil }
            stream.send("later")
            #expect(pair.receivedBytes() == [])
            goesOn.open()
            try await handshake.value
            try await suspendUntil("the layer's bytes have come") { received.value == "-plain" }
            try await suspendUntil("its own are sent") { pair.receivedBytes() == Array("later".utf8) }
            stream.close()
        }
    }

    @Test func `a layer is refused while a task reads, and when there is one`() async throws {
        try await withTestLoop { loop in
            let (first, stream) = try connected(loop)
            let read = Task { try await stream.read() }
            try await suspendUntil("it reads") { stream.testsOnlyWaiters.readers == 1 }
            await #expect(throws: RunLoop.SourceError.self) { try await stream.install(ScriptedLayer()) }
            await #expect(throws: StreamError.closed) { try await read.value }
            first.closePeer()
            let (pair, other) = try await withLayer(loop)
            await #expect(throws: RunLoop.SourceError.self) { try await other.install(ScriptedLayer()) }
            pair.send("still here")
            #expect(try await other.read() == Array("still here".utf8))
        }
    }
}
