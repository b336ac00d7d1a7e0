// Rules proved here (RunLoop+Ticks.swift, SingleElementChannel.swift):
// - The task gets one tick for each fire, in the loop's time, on the grid that begins with the iteration.
// - A slow task gets one tick that counts several fires.
// - The timer is removed when the task is cancelled, leaves the iteration or releases the iterator. The sequence ends with the loop.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded, .tags(.threads)) struct `Ticks for tasks` {
    @Test func `a task gets one tick for each fire, on the grid, in the loop's own time`() async throws {
        try await withManualThread { loop, clock in
            var ticks = loop.ticks(every: .milliseconds(10)).makeAsyncIterator()
            #expect(loop.timerCount == 1)
            for number in 1...5 {
                clock.advance(by: .milliseconds(10))
                #expect(await ticks.next() == .init(date: .ms(Int64(number) * 10), count: 1))
                // Waits until the handler has returned; otherwise the next date would count as missed.
                try await loop.performAsync {}
            }
        }
    }

    @Test func `a slow task gets one tick for all fires that it missed, and no ticks are queued`() async throws {
        try await withManualThread { loop, clock in
            var ticks = loop.ticks(every: .milliseconds(10)).makeAsyncIterator()
            for number in 1...1_000 {
                clock.advance(by: .milliseconds(10))
                try await suspendUntil("timer fire \(number)") { loop.statistics.timersFired >= number }
                // Waits until the handler has returned; otherwise the next date would count as missed.
                try await loop.performAsync {}
            }
            #expect(await ticks.next() == .init(date: .ms(10_000), count: 1_000))
            clock.advance(by: .milliseconds(10))
            #expect(await ticks.next() == .init(date: .ms(10_010), count: 1))
        }
    }

    @Test func `leaving the iteration, cancelling the task and dropping the iterator remove the timer`() async throws {
        try await withManualThread { loop, clock in
            let begun = AsyncStream.makeStream(of: Void.self)
            let task = Task {
                for await _ in loop.ticks(every: .milliseconds(10)) { begun.continuation.finish() }
                return Task.isCancelled
            }
            try await loop.untilItHolds(timers: 1)
            clock.advance(by: .milliseconds(10))
            for await _ in begun.stream {}
            task.cancel()
            #expect(await task.value)
            #expect(loop.timerCount == 0)

            let leaver = Task { for await _ in loop.ticks(every: .milliseconds(10)) { break } }
            try await loop.untilItHolds(timers: 1)
            clock.advance(by: .milliseconds(10))
            await leaver.value
            #expect(loop.timerCount == 0)

            do {
                let iterator = loop.ticks(every: .milliseconds(10)).makeAsyncIterator()
                let copy = iterator
                #expect(loop.timerCount == 1)
                withExtendedLifetime((iterator, copy)) {}
            }
            #expect(loop.timerCount == 0)
        }
    }

    @Test func `a task that is cancelled before it asks gets nil, and leaves no timer behind`() async throws {
        try await withManualThread { loop, _ in
            let task = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                for await _ in loop.ticks(every: .milliseconds(1)) { Issue.record("a tick for a cancelled task") }
            }
            await task.value
            #expect(loop.timerCount == 0)
        }
    }

    @Test func `each iterator has a timer of its own`() async throws {
        try await withManualThread { loop, clock in
            let ticks = loop.ticks(every: .milliseconds(10))
            var first = ticks.makeAsyncIterator()
            clock.advance(by: .milliseconds(5))
            var second = ticks.makeAsyncIterator()
            #expect(loop.timerCount == 2)
            clock.advance(by: .milliseconds(10))
            #expect(await first.next()?.date == .ms(10))
            #expect(await second.next()?.date == .ms(15))
        }
    }

    @Test func `the sequence ends when the loop ends, and is empty on a loop that has ended`() async throws {
        let thread = try RunLoopThread(name: "short")
        let loop = thread.runLoop
        let task = Task { for await _ in loop.ticks(every: .seconds(3600)) {} }
        try await loop.untilItHolds(timers: 1)
        thread.stop()
        await task.value
        #expect(thread.join(timeout: patience))
        for await _ in loop.ticks(every: .milliseconds(1)) { Issue.record("a tick of an ended loop") }
    }

    @Test func `cancellation that races with ticks ends the task and leaves no timer behind`() async throws {
        try await withLoopThread { thread in
            for round in 0..<200 / roundsDivisor {
                let task = Task { for await _ in thread.runLoop.ticks(every: .microseconds(100)) {} }
                for _ in 0..<round { await Task.yield() }
                task.cancel()
                await task.value
            }
            #expect(thread.runLoop.timerCount == 0)
        }
    }

    @Test func `ticks wait while the loop runs in another mode, and follow the timer's tolerance`() async throws {
        try await withManualThread { loop, clock in
            var ticks = loop.ticks(every: .milliseconds(10), tolerance: .milliseconds(100), mode: "private").makeAsyncIterator()
            clock.advance(by: .milliseconds(35))
            try await loop.performAsync {
                #expect(loop.statistics.timersFired == 0)
                _ = loop.run(mode: "private", for: .zero)
            }
            // One late fire, as for any timer.
            #expect(await ticks.next()?.count == 1)
        }
    }
}
