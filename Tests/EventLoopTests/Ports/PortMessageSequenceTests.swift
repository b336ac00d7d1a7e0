// Rules proved here (RunLoop+PortMessages.swift, SingleElementChannel.swift):
// - Each message reaches one task, once and in order. Several tasks that iterate one port share its messages.
// - While no task asks for a message, messages stay in the port's queue, and a full queue refuses sends.
// - Cancelling or dropping an iterator loses no message and leaves the port unchanged.
// - The sequence ends with the port and with the loop.

import EventLoop
import EventLoopTestSupport
import Testing

private typealias Message = RunLoop.PortMessage

extension RunLoop {
    fileprivate var readerCount: Int { debugDescription.split(separator: "\n").filter { $0.contains("    reader of a port") }.count }
}

@Suite(.bounded, .tags(.threads)) struct `Messages for tasks` {
    @Test func `a task receives each message once, in order`() async throws {
        try await withLoopThread { thread in
            let count = 2_000 / UInt32(roundsDivisor)
            let port = RunLoop.Port(capacity: 4)
            let reader = Task {
                var ids: [UInt32] = []
                for await message in thread.runLoop.messages(of: port) {
                    if message.id == count { break }
                    ids.append(message.id)
                }
                return ids
            }
            let sender = plainThread { for id in 0...count { try port.send(Message(id: id), before: .now + patience) } }
            #expect(await reader.value == Array(0..<count))
            try sender.join()
            try await thread.runLoop.performAsync {}
            #expect(thread.runLoop.readerCount == 0)
            #expect(port.isValid)
        }
    }

    @Test func `while no task asks for a message, messages stay in the queue and a full queue refuses sends`() async throws {
        try await withLoopThread { thread in
            let port = RunLoop.Port(capacity: 3)
            var messages = thread.runLoop.messages(of: port).makeAsyncIterator()
            try port.send(1, 2, 3)
            let before = thread.runLoop.statistics
            for _ in 0..<5 { try await thread.runLoop.performAsync {} }
            // These five are the performs themselves.
            #expect(thread.runLoop.statistics.sourcesHandled == before.sourcesHandled + 5)
            #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(4) }
            #expect(await messages.next()?.id == 1)
            try port.send(4)
            #expect(throws: RunLoop.PortError.sendTimedOut) { try port.send(5) }
            for id in 2...4 as ClosedRange<UInt32> { #expect(await messages.next()?.id == id) }
        }
    }

    @Test func `a loop sleeps although messages are queued, if no task asks for them`() async throws {
        try await withLoopThread { thread in
            let port = RunLoop.Port()
            var messages = thread.runLoop.messages(of: port).makeAsyncIterator()
            try port.send(1, 2)
            #expect(await messages.next()?.id == 1)
            try waitUntilAsleep(thread.runLoop)
            #expect(await messages.next()?.id == 2)
        }
    }

    @Test func `messages are held while the loop runs in other modes`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let port = RunLoop.Port()
            try port.send(1)
            let got = Box<UInt32?>(nil)
            let reader = Task {
                for await message in loop.messages(of: port, mode: .first) {
                    got.value = message.id
                    break
                }
            }
            try await suspendUntil("a task reads the port") { loop.readerCount > 0 }
            for _ in 0..<20 { try await loop.performAsync {} }
            #expect(got.value == nil)
            try await loop.performAsync { _ = runNested(loop, .first) }
            await reader.value
            #expect(got.value == 1)
        }
    }

    @Test func `several tasks share the messages of a port, and none is lost`() async throws {
        let group = try RunLoopThreadGroup(count: 2)
        let count = 600 / UInt32(roundsDivisor)
        let port = RunLoop.Port(capacity: 8)
        let sender = plainThread {
            for id in 1...count { try port.send(Message(id: id), before: .now + patience) }
        }
        let seen = await withTaskGroup(of: [UInt32].self) { tasks in
            let total = Counter()
            for index in 0..<4 {
                tasks.addTask {
                    var ids: [UInt32] = []
                    for await message in group.runLoops[index % 2].messages(of: port) {
                        ids.append(message.id)
                        if total.increment() == Int(count) { port.invalidate() }
                    }
                    #expect(ids == ids.sorted())
                    return ids
                }
            }
            return await tasks.reduce(into: []) { $0 += $1 }
        }
        try sender.join()
        await group.shutdown()
        #expect(seen.sorted() == Array(1...count))
    }

    @Test func `if two loops compete for one message, the loop that loses continues to wait`() async throws {
        let count = 4_000 / UInt32(roundsDivisor)
        let group = try RunLoopThreadGroup(count: 2)
        let port = RunLoop.Port()
        let seen = Counter()
        async let readers: Void = withTaskGroup(of: Void.self) { tasks in
            for loop in group.runLoops {
                tasks.addTask { for await _ in loop.messages(of: port) { seen.increment() } }
            }
        }
        let sender = plainThread {
            for id in 1...count {
                try port.send(Message(id: id))
                // Sends one message at a time, because each message wakes both loops.
                try waitUntil("the message") { seen.value == Int(id) }
            }
            port.invalidate()
        }
        await readers
        try sender.join()
        await group.shutdown()
        #expect(seen.value == Int(count))
    }

    @Test func `a cancelled task loses no message, whenever the cancellation comes`() async throws {
        try await withLoopThread { thread in
            let port = RunLoop.Port(capacity: 4)
            let count = 400 / UInt32(roundsDivisor)
            let sender = plainThread { for id in 1...count { try port.send(Message(id: id), before: .now + patience) } }
            let seen = Box<[UInt32]>([])
            var round = 0
            while seen.value.count < Int(count) {  // ends: every few rounds take a message; else the suite's limit ends it
                try Task.checkCancellation()
                let reader = Task {
                    for await message in thread.runLoop.messages(of: port) { seen.change { $0.append(message.id) } }
                }
                for _ in 0..<(round % 50) { await Task.yield() }
                reader.cancel()
                await reader.value
                round += 1
            }
            try sender.join()
            #expect(seen.value == Array(1...count))
            #expect(port.isValid)
        }
    }

    @Test func `the sequence ends with the port, and a sequence made afterwards has already ended`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let port = RunLoop.Port()
            let reader = Task { for await _ in loop.messages(of: port) {} }
            try await suspendUntil("a task reads the port") { loop.readerCount > 0 }
            port.invalidate()
            await reader.value
            var late = loop.messages(of: port).makeAsyncIterator()
            #expect(await late.next() == nil)
            try await loop.performAsync {}
            #expect(loop.readerCount == 0)
        }
    }

    @Test func `the sequence ends with the loop, and the port stays valid`() async throws {
        let thread = try RunLoopThread(name: "short")
        let loop = thread.runLoop
        let port = RunLoop.Port()
        let reader = Task { for await _ in loop.messages(of: port) {} }
        try await suspendUntil("a task reads the port") { loop.readerCount > 0 }
        thread.stop()
        await reader.value
        #expect(thread.join(timeout: patience))
        #expect(port.isValid)
        try port.send(1)
        var late = loop.messages(of: port).makeAsyncIterator()
        #expect(await late.next() == nil)
        try await withLoopThread { thread in
            var messages = thread.runLoop.messages(of: port).makeAsyncIterator()
            #expect(await messages.next()?.id == 1)
        }
    }

    @Test func `dropping the iterator removes the reader from the loop`() async throws {
        try await withLoopThread { thread in
            let port = RunLoop.Port()
            do {
                let iterator = thread.runLoop.messages(of: port).makeAsyncIterator()
                #expect(thread.runLoop.readerCount == 1)
                withExtendedLifetime(iterator) {}
            }
            try await thread.runLoop.performAsync {}
            #expect(thread.runLoop.readerCount == 0)
        }
    }

    @Test func `a task cannot read a port that has a handler`() async {
        await #expect(processExitsWith: .failure) {
            let port = RunLoop.Port { _, _ in }
            try onFreshThread { loop in _ = loop.messages(of: port) }
        }
    }
}

/// A synchronous function may run a loop; an async function may not.
private func runNested(_ loop: RunLoop, _ mode: RunLoop.Mode) -> RunLoop.RunResult {
    loop.run(mode: mode, for: .zero)
}
