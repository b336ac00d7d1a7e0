// Many threads and tasks on one stream, and loops that end: run under ThreadSanitizer, too.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private func small() -> ByteStream.Options {
    var options = ByteStream.Options()
    (options.receiveLimit, options.highWater, options.lowWater) = (512, 512, 64)
    return options
}

@Suite(.bounded, .tags(.memory, .threads)) struct StreamRaceTests {
    @Test(arguments: ConnectionKind.allCases) func `threads send to a stream that is closed meanwhile`(kind: ConnectionKind) throws {
        let (running, other) = (RunningLoop(), RunningLoop())
        for round in 0..<20 {
            let (first, second) = try kind.connect(on: running.loop, and: other.loop)
            let ends = Box<[ByteStream.End]>([])
            first.onEnd { stream, end in
                ends.change { $0.append(end) }
                #expect(stream.loop.isCurrent)
            }
            second.onReceive { _, bytes in bytes.consume(bytes.count) }
            let threads = (0..<4).map { thread in
                plainThread {
                    for index in 0..<200 {
                        first.send([UInt8(thread), UInt8(index)])
                        if thread == 0 && index == round * 10 { if round % 2 == 0 { first.close() } else { first.closeAfterWriting() } }
                        if thread == 1 && index % 50 == 0 { first.onRoom { _ in } }
                        if thread == 2 && index % 20 == 0 { first.isReading = index % 40 == 0 }
                    }
                }
            }
            for thread in threads { try thread.join() }
            second.closeAfterWriting()
            try waitUntil("the end is reported") { !ends.value.isEmpty }
            #expect(ends.value == [.closed] && !first.send([1]) && first.bytesWaiting == 0)
            second.close()
        }
        try running.end()
        try other.end()
    }

    @Test(arguments: ConnectionKind.allCases)
    func `of many writers, each message arrives whole, in its writer's order, and not if it was cancelled`(kind: ConnectionKind)
        async throws
    {
        let (running, other) = (RunningLoop(), RunningLoop())
        let (first, second) = try kind.connect(on: running.loop, and: other.loop, options: small())
        let reader = Task {
            var messages: [[UInt8]] = []
            for try await message in second.frames(LengthPrefixFraming(lengthBytes: 2)) { messages.append(message) }
            return messages
        }
        let written = await withTaskGroup(of: (UInt8, [UInt8]).self, returning: [UInt8: [UInt8]].self) { group in
            for writer in UInt8(0)..<6 {
                group.addTask {
                    var done: [UInt8] = []
                    for number in UInt8(0)..<60 {
                        let length = 2 + Int(writer) * 20 + Int(number) % 7
                        let body = [writer, number] + [UInt8](repeating: writer, count: length - 2)
                        let task = Task { try await first.write([0, UInt8(length)] + body) }
                        if number % 3 == writer % 3 { task.cancel() }
                        if case .success = await task.result { done.append(number) }
                    }
                    return (writer, done)
                }
            }
            return await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
        }
        try await first.finishWriting()
        let messages = try await reader.value
        for writer in UInt8(0)..<6 {
            #expect(messages.filter { $0[0] == writer }.map { $0[1] } == written[writer])
        }
        #expect(messages.allSatisfy { message in message.dropFirst(2).allSatisfy { $0 == message[0] } })
        first.close()
        second.close()
        try running.end()
        try other.end()
    }

    @Test(arguments: ConnectionKind.allCases) func `reads that are cancelled as bytes come lose none of them`(kind: ConnectionKind)
        async throws
    {
        let (running, other) = (RunningLoop(), RunningLoop())
        let (first, second) = try kind.connect(on: running.loop, and: other.loop, options: small())
        let count = 20_000
        let writer = Task {
            for start in stride(from: 0, to: count, by: 100) {
                try await first.write((start..<(start + 100)).map { UInt8(truncatingIfNeeded: $0) })
                if start % 1_000 == 0 { await Task.yield() }
            }
            try await first.finishWriting()
        }
        var received: [UInt8] = []
        var turn = 0
        while received.count < count {
            turn += 1
            let wanted = min(1 + turn % 300, count - received.count)
            let task = Task { [turn] in turn % 2 == 0 ? try await second.read(exactly: wanted) : try await second.read(upTo: wanted) ?? [] }
            if turn % 3 == 0 { task.cancel() }
            if turn % 7 == 0 {
                await Task.yield()
                task.cancel()
            }
            if case .success(let bytes) = await task.result { received += bytes }
        }
        try await writer.value
        #expect(received == (0..<count).map { UInt8(truncatingIfNeeded: $0) })
        first.close()
        second.close()
        try running.end()
        try other.end()
    }

    @Test(arguments: ConnectionKind.allCases) func `handlers that another thread sets and pauses miss nothing`(kind: ConnectionKind) throws
    {
        let (running, other) = (RunningLoop(), RunningLoop())
        for round in 0..<20 {
            let (first, second) = try kind.connect(on: running.loop, and: other.loop, options: small())
            let received = Box<[UInt8]>([])
            let ends = Counter()
            let sender = plainThread {
                for index in 0..<100 { second.send([UInt8](repeating: UInt8(index), count: 37)) }
                second.closeAfterWriting()
            }
            for _ in 0..<(round * 5) { breathe() }
            first.onReceive { _, bytes in
                let taken = bytes.take(bytes.count)
                received.change { $0 += taken }
            }
            for index in 0..<50 {
                first.isReading = index % 2 == 1
                breathe()
            }
            first.isReading = true
            first.onEnd { _, _ in ends.increment() }
            try sender.join()
            try waitUntil("the end is reported") { ends.value > 0 }
            #expect(received.value == (0..<100).flatMap { [UInt8](repeating: UInt8($0), count: 37) } && ends.value == 1)
        }
        try running.end()
        try other.end()
    }

    @Test(arguments: ConnectionKind.allCases) func `calls in progress throw when the loop ends, and the end is reported`(
        kind: ConnectionKind
    ) async throws {
        let other = RunningLoop()
        for round in 0..<6 {
            let running = RunningLoop()
            let (first, second) = try kind.connect(on: running.loop, and: other.loop, options: small())
            let ends = Box<[ByteStream.End]>([])
            first.onEnd { _, end in ends.change { $0.append(end) } }
            first.send([UInt8](repeating: 1, count: 16 << 20))
            let reader = Task { try await first.read() }
            let writer = Task { try await first.write("x") }
            if round > 1 { try await suspendUntil("they wait") { first.testsOnlyWaiters.readers + first.testsOnlyWaiters.writers == 2 } }
            if round % 2 == 0 { first.closeAfterWriting() }
            try running.end()
            let results = (await reader.result, await writer.result)
            if case .success = results.0 { Issue.record("the read returned") }
            if round % 2 == 1 {
                #expect(throws: RunLoopEnded.self) { try results.0.get() }
                #expect(throws: RunLoopEnded.self) { try results.1.get() }
            }
            try await suspendUntil("the end is reported") { !ends.value.isEmpty }
            #expect(ends.value == [.loopEnded] && !first.isOpen && !first.send("x") && first.bytesWaiting == 0)
            await #expect(throws: RunLoopEnded.self) { try await first.read() }
            second.close()
        }
        try other.end()
    }

    @Test func `a write returns although the loop's thread ends meanwhile`() async throws {
        for _ in 0..<100 {
            let thread = try RunLoopThread(name: "ends")
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: thread.runLoop)
            // Interest in room comes and goes with each write, and each time the task may be the last to refer to the source.
            let writer = Task {
                while true { try await stream.write([UInt8](repeating: 1, count: 10_000)) }
            }
            thread.stop()
            await thread.join()
            await #expect(throws: RunLoopEnded.self) { try await writer.value }
            #expect(stream.end == .loopEnded)
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `what ended a stream is thrown after the peer's last byte, too`(kind: ConnectionKind)
        async throws
    {
        let running = RunningLoop()
        var options = ByteStream.Options()
        options.writeTimeout = .milliseconds(20)
        let (first, second) = try kind.connect(on: running.loop, options: options, others: small())
        try await second.finishWriting()
        let last = try await first.read()
        #expect(last == nil && first.end == .endOfStream)
        // Nobody reads at the other end.
        first.send([UInt8](repeating: 1, count: 16 << 20))
        await #expect(throws: StreamError.timedOut) { try await first.write("x") }
        await #expect(throws: StreamError.timedOut) { try await first.write("x") }
        second.close()
        try running.end()
    }
}
