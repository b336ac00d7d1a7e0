// The code of docs/pitfalls.md, compiled.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private enum Names {
    typealias RunLoop = EventLoop.RunLoop
}

/// Compiled, and never called: it would change the process of the tests.
private func ignoreBrokenPipes() {
    signal(SIGPIPE, SIG_IGN)
}

@Suite(.timeLimit(.minutes(2))) struct DocumentedPitfalls {
    @Test func `a handler starts a task that stays on the loop`() async throws {
        let thread = try RunLoopThread(name: "tasks")
        let loop = thread.runLoop
        let places = AsyncStream<Bool>.makeStream()
        let report: @Sendable () async -> Void = { places.continuation.yield(loop.isCurrent) }

        loop.perform {
            Task(executorPreference: loop) { await report() }
        }

        var iterator = places.stream.makeAsyncIterator()
        #expect(await iterator.next() == true)
        thread.stop()
        #expect(await thread.join(timeout: patience))
    }

    @Test func `a loop of runs ends when nothing is left to wait for`() throws {
        try inManualTime { _, clock, trace in
            let loop: Names.RunLoop = Names.RunLoop.current
            RunLoop.Timer.scheduled(after: .seconds(2)) { _ in trace.add("fired") }

            while loop.run(mode: .default, for: .seconds(1)) != .finished {}

            #expect(trace.list == ["fired"] && clock.ms == 2_000)
        }
    }
}
