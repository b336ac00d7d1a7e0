// The code of docs/modes.md, compiled and run.

import EventLoop
import EventLoopTestSupport
import Testing

extension RunLoop.Mode {
    static let question = RunLoop.Mode("question")
}

/// Asks, and waits for the answer. Meanwhile the loop serves nothing but the answer.
func ask(_ question: String, over port: RunLoop.Port, answers: RunLoop.Port, on loop: RunLoop) throws -> Bool {
    loop.add(answers, forMode: .question)
    defer { loop.remove(answers, forMode: .question) }
    try port.send(RunLoop.PortMessage(id: 1, components: [.bytes(Array(question.utf8))], replyPort: answers))
    return loop.run(mode: .question, for: .seconds(60), returnAfterSourceHandled: true) == .handledSource
}

/// Listing 3-2: what a thread does that runs its loop itself, a source at a time.
func serve(while isWanted: () -> Bool) {
    let loop = RunLoop.current
    // Add sources and timers here.
    while isWanted() {
        switch loop.run(for: .seconds(10), returnAfterSourceHandled: true) {
        case .handledSource, .timedOut: continue
        case .stopped, .finished: return  // somebody wants it to end, or nothing is left to wait for
        }
    }
    // Clean up here.
}

@Suite struct DocumentedModes {
    @Test func `a run in a mode of its own serves the answer, and nothing else`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let worker = try RunLoopThread(name: "worker")
            let questions = RunLoop.Port { _, message in
                try? message.replyPort?.send(RunLoop.PortMessage(id: 2))
            }
            worker.runLoop.add(questions)
            let answers = RunLoop.Port { _, _ in trace.add("answer") }
            loop.perform { trace.add("other work") }

            #expect(try ask("why?", over: questions, answers: answers, on: loop))
            #expect(trace.list == ["answer"])
            #expect(loop.run(for: .zero) != .stopped)
            #expect(trace.list == ["answer", "other work"])
            worker.stop()
            worker.join()
        }
    }

    @Test func `Listing 3-2: a loop of runs ends when nobody wants it, when it is stopped, and when nothing is left`() throws {
        try inManualTime { loop, _, trace in
            serve { true }  // the mode is empty
            let source = loop.addSource { _ in trace.add("source") }
            let turns = Counter()
            loop.perform(after: .seconds(25)) {
                source.signal()
            }
            serve { turns.increment() <= 4 }
            #expect(trace.list == ["source"] && turns.value == 5)
            loop.perform(after: .seconds(1)) { loop.stop() }
            serve { true }
            source.invalidate()
        }
    }

    @Test func `an item of the common modes is in every common mode`() throws {
        try inManualTime { loop, _, trace in
            let print: @Sendable (String) -> Void = { trace.add($0) }

            loop.addCommonMode(.question)
            let timer = RunLoop.Timer(every: .seconds(1)) { _ in print("tick") }
            loop.add(timer, forMode: .common)
            // The timer fires in runs of `.default` and of `.question`.

            #expect(loop.run(mode: .question, for: .milliseconds(1_500)) == .timedOut)
            #expect(loop.run(for: .milliseconds(1_000)) == .timedOut)
            #expect(trace.list == ["tick", "tick"])
            timer.invalidate()
        }
    }

    @Test func `a keep-alive keeps a run waiting for other threads, and a sticky stop cannot come too early`() throws {
        let thread = try onFreshThread { loop in
            let keepAlive = loop.keepAlive()
            defer { keepAlive.cancel() }
            let other = plainThread { loop.stop(sticky: true) }
            let result = loop.run()
            try other.join()
            return result
        }
        #expect(thread == .stopped)
    }

    @Test func `a nested run is stopped, and the outer run goes on`() throws {
        try inManualTime { loop, _, trace in
            let print: @Sendable (String) -> Void = { trace.add($0) }

            loop.perform {
                // A nested run, two seconds long. The outer run waits.
                let result = loop.run(for: .seconds(2))
                print("\(result) at depth \(loop.runDepth)")
            }

            let idle = loop.addIdleSource()
            loop.perform(after: .seconds(1)) { loop.stop() }
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            #expect(trace.list == ["stopped at depth 1"])
            idle.invalidate()
        }
    }
}
