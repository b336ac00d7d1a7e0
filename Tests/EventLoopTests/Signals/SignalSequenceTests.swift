// Rules proved here (RunLoop+Signals.swift): a task receives counts, which coalesce while it is busy. The source ends with the iteration,
// and the loop's end ends the iteration with an error.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct `Signals for tasks` {
    @Test func `a task counts every signal, and signals that arrive while it is busy coalesce into one element`() async throws {
        let signal = testSignal(24)
        try await withLoopThread { thread in
            var signals = thread.runLoop.signals(signal).makeAsyncIterator()
            try plainThread {
                letThrough(signal)
                raiseHere(signal, times: 7)
            }.join()
            // All signals have reached the source when the loop completes a pass. They form one element, or two if a call comes in between.
            var total = 0
            while total < 7 { total += try await signals.next() ?? 100 }
            #expect(total == 7)
            let sent = Box(0)
            let sender = plainThread {
                letThrough(signal)
                for _ in 0..<200 {
                    raiseHere(signal)
                    sent.increment()
                }
            }
            total = 0
            while total < 200 { total += try await signals.next() ?? 1_000 }
            #expect(total == 200)
            try sender.join()
        }
    }

    @Test func `the source ends with the iterator and with the task`() async throws {
        let signal = testSignal(25)
        install(.ignored, for: signal)
        let before = installedHandler(of: signal)
        try await withLoopThread { thread in
            do {
                let iterator = thread.runLoop.signals(signal).makeAsyncIterator()
                #expect(installedHandler(of: signal) != before)
                withExtendedLifetime(iterator) {}
            }
            #expect(installedHandler(of: signal) == before)
            for round in 0..<100 / roundsDivisor {
                let task = Task { for try await _ in thread.runLoop.signals(signal) {} }
                for _ in 0..<(round % 20) { await Task.yield() }
                task.cancel()
                try await task.value
            }
            #expect(installedHandler(of: signal) == before)
        }
    }

    @Test func `watching a signal that cannot be handled throws, and so does the loop's end`() async throws {
        let thread = try RunLoopThread(name: "short")
        let loop = thread.runLoop
        await #expect(throws: RunLoop.SourceError.badSignal(SIGKILL)) { for try await _ in loop.signals(SIGKILL) {} }
        let waiting = Task { for try await _ in loop.signals(testSignal(26)) {} }
        try await suspendUntil("the task watches the signal") { loop.debugDescription.contains("signals for a task") }
        thread.stop()
        #expect(thread.join(timeout: patience))
        await #expect(throws: RunLoopEnded.self) { try await waiting.value }
        await #expect(throws: RunLoopEnded.self) { for try await _ in loop.signals(testSignal(26)) {} }
    }
}
