// Rules proved here (RunLoop+Readiness.swift, SingleElementChannel.swift):
// - A task that asks for readiness gets the events for which the descriptor is ready. The loop reports nothing while no task asks.
// - The end of the iteration removes the source. If the descriptor cannot be watched or the loop ends, the iteration throws.

import EventLoop
import EventLoopTestSupport
import Testing

extension RunLoop {
    fileprivate var sourceCount: Int { debugDescription.split(separator: "\n").filter { $0.contains("    descriptor ") }.count }
}

@Suite(.bounded, .tags(.threads)) struct `Readiness for tasks` {
    @Test func `a task that asks after each message reads each message once`() async throws {
        try await withLoopThread { thread in
            let pipe = Pipe()
            let echo = AsyncStream.makeStream(of: String.self)
            let reader = Task {
                for try await events in thread.runLoop.readiness(of: pipe.readEnd) {
                    #expect(events == .read)
                    echo.continuation.yield(pipe.readAll())
                }
            }
            var answers = echo.stream.makeAsyncIterator()
            for number in 0..<200 / roundsDivisor {
                pipe.write("\(number)")
                #expect(await answers.next() == "\(number)")
            }
            reader.cancel()
            try await reader.value
            try await thread.runLoop.performAsync {}
            #expect(thread.runLoop.sourceCount == 0)
        }
    }

    @Test func `the loop reports nothing while no task asks, and reports the present state when one asks`() async throws {
        try await withLoopThread { thread in
            let pipe = Pipe()
            var readiness = thread.runLoop.readiness(of: pipe.readEnd).makeAsyncIterator()
            for _ in 0..<10 { pipe.write() }
            for _ in 0..<10 { try await thread.runLoop.performAsync {} }
            let handled = thread.runLoop.statistics.sourcesHandled
            try await thread.runLoop.performAsync {}
            // The loop handled this perform and nothing else.
            #expect(thread.runLoop.statistics.sourcesHandled == handled + 1)
            let ready = try await readiness.next()
            #expect(ready == .read)
            #expect(pipe.readAll() == "xxxxxxxxxx")
            pipe.write("y")
            let readyAgain = try await readiness.next()
            #expect(readyAgain == .read)
            // The byte is still unread, so the loop reports it again.
            let stillReady = try await readiness.next()
            #expect(stillReady == .read)
        }
    }

    @Test func `a task gets the events for which the descriptor is ready`() async throws {
        try await withLoopThread { thread in
            let pair = SocketPair()
            var readiness = thread.runLoop.readiness(of: pair.near, events: [.read, .write]).makeAsyncIterator()
            let ready = try await readiness.next()
            #expect(ready == .write)
        }
    }

    @Test func `a descriptor that cannot be watched throws once`() async throws {
        try await withLoopThread { thread in
            var readiness = thread.runLoop.readiness(of: -1).makeAsyncIterator()
            do {
                _ = try await readiness.next()
                Issue.record("a bad descriptor was watched")
            } catch { #expect(error as? RunLoop.SourceError == .badDescriptor(-1)) }
            let next = try await readiness.next()
            #expect(next == nil)
        }
    }

    @Test func `if the loop ends, the waiting task gets RunLoopEnded`() async throws {
        let pipe = Pipe()
        let thread = try RunLoopThread(name: "short")
        let loop = thread.runLoop
        let reader = Task { for try await _ in loop.readiness(of: pipe.readEnd) {} }
        try await suspendUntil("the loop holds the source") { loop.sourceCount > 0 }
        try waitUntilAsleep(loop)
        thread.stop()
        await #expect(throws: RunLoopEnded.self) { try await reader.value }
        #expect(thread.join(timeout: patience))
        var late = loop.readiness(of: pipe.readEnd).makeAsyncIterator()
        do {
            _ = try await late.next()
            Issue.record("an ended loop watched")
        } catch { #expect(error is RunLoopEnded) }
    }

    @Test func `dropping the iterator or cancelling the task removes the source, in every race`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let pipe = Pipe()
            do {
                let iterator = loop.readiness(of: pipe.readEnd).makeAsyncIterator()
                #expect(loop.sourceCount == 1)
                withExtendedLifetime(iterator) {}
            }
            try await loop.performAsync {}
            #expect(loop.sourceCount == 0)
            for round in 0..<200 / roundsDivisor {
                let reader = Task { for try await _ in loop.readiness(of: pipe.readEnd) { pipe.readAll() } }
                if round % 3 == 0 { pipe.write() }
                for _ in 0..<(round % 20) { await Task.yield() }
                reader.cancel()
                try await reader.value
            }
            try await loop.performAsync {}
            #expect(loop.sourceCount == 0)
        }
    }

    @Test func `an actor on the loop reads without leaving the loop`() async throws {
        try await withLoopThread { thread in
            let pipe = Pipe()
            let ledger = Ledger(on: thread.runLoop)
            pipe.write("hello")
            let answer = try await ledger.readOnce(pipe)
            #expect(answer == "hello on the loop")
        }
    }
}

extension Ledger {
    fileprivate func readOnce(_ pipe: Pipe) async throws -> String {
        for try await _ in loop.readiness(of: pipe.readEnd) {
            assertIsolated()
            return pipe.readAll() + (loop.isCurrent ? " on the loop" : " elsewhere")
        }
        return "ended"
    }
}
