// Rules proved here:
// - On another thread, it blocks until the body has returned on the loop's thread, then returns the body's value or throws its error.
// - On the loop's own thread, it runs the body at once, before any queued closure, in any mode, inside or outside a run.
// - It is a perform: it wakes the loop, is a handled source, has modes, and keeps its place in the queue.
// - A timeout that passes before the body begins withdraws the body; a timeout that passes later has no effect.
// - If the loop ends, the waiting thread gets `RunLoopEnded`. An empty list of modes is a precondition failure, even on the loop's own
//   thread.

import EventLoop
import EventLoopTestSupport
import Testing

private struct Failure: Error, Equatable { let number: Int }

private final class Note {
    var text: String
    init(_ text: String) { self.text = text }
}

/// Ignores an error, which is not a trap.
private func performInNoMode(of loop: RunLoop) {
    try? loop.performAndWait(inModes: [], timeout: .zero) {}
}

@Suite(.bounded, .tags(.threads)) struct `Perform and wait` {
    @Test func `returns the value, computed on the loop's thread`() throws {
        let running = RunningLoop()
        for number in 1...200 {
            let result = try running.loop.performAndWait { (number * 2, currentThreadID(), running.loop.isCurrent) }
            #expect(result == (number * 2, running.threadID, true))
        }
        try running.end()
    }

    @Test func `returns a value that is not Sendable`() throws {
        let running = RunningLoop()
        let note = try running.loop.performAndWait { Note("from there") }
        note.text += ", here"
        #expect(note.text == "from there, here")
        try running.end()
    }

    @Test func `throws the body's error`() throws {
        let running = RunningLoop()
        #expect(throws: Failure(number: 7)) { try running.loop.performAndWait { throw Failure(number: 7) } }
        // The loop continues.
        #expect(try running.loop.performAndWait { 1 } == 1)
        #expect(try running.end() == .stopped)
    }

    @Test func `may use variables on the caller's stack`() throws {
        let running = RunningLoop()
        let seen = Counter()
        for _ in 1...100 {
            try running.loop.performAndWait { _ = seen.increment() }
        }
        #expect(seen.value == 100)
        try running.end()
    }

    @Test func `does not return before the body returns`() throws {
        let trace = Trace()
        let (entered, leave) = (Gate(), Gate())
        let running = RunningLoop()
        let waiter = plainThread {
            try running.loop.performAndWait {
                trace.add("(")
                entered.open()
                leave.wait()
                trace.add(")")
            }
            trace.add("returned")
        }
        entered.wait()
        leave.open()
        try waiter.join()
        #expect(trace.take() == "( ) returned")
        try running.end()
    }

    /// The loop of Listing 3-14 runs until a flag is set, and checks the flag after each source.
    @Test func `is a handled source, and wakes the loop`() throws {
        let published = Box<RunLoop?>(nil)
        let ready = Gate()
        let thread = joinableThread { loop in
            loop.addIdleSource()
            published.value = loop
            ready.open()
            return loop.run(for: patience, returnAfterSourceHandled: true)
        }
        ready.wait()
        try waitUntilAsleep(published.value!)
        #expect(try published.value!.performAndWait { 5 } == 5)
        #expect(try thread.join() == .handledSource)
    }

    @Test func `keeps its place among the performs`() throws {
        let trace = Trace()
        let (entered, leave) = (Gate(), Gate())
        let running = RunningLoop { loop in
            loop.perform {
                entered.open()
                leave.wait()
            }
        }
        entered.wait()
        running.loop.perform { trace.add("before") }
        let waiter = plainThread { try running.loop.performAndWait { trace.add("waited for") } }
        leave.open()
        try waiter.join()
        #expect(trace.take() == "before waited for")
        try running.end()
    }

    @Test func `waits for a run of one of its modes`() throws {
        let trace = Trace()
        let (queued, published) = (Gate(), Box<RunLoop?>(nil))
        let ready = Gate()
        let thread = joinableThread { loop in
            for mode in [RunLoop.Mode.default, "right", "wrong"] { loop.addIdleSource(forMode: mode) }
            published.value = loop
            ready.open()
            queued.wait()
            #expect(loop.run(mode: "wrong", for: .zero) == .timedOut)
            trace.add("wrong")
            #expect(loop.run(for: .zero) == .timedOut)
            trace.add("default")
            #expect(loop.run(mode: "right", for: patience, returnAfterSourceHandled: true) == .handledSource)
        }
        ready.wait()
        let loop = published.value!
        let waiter = plainThread { try loop.performAndWait(inModes: ["right"]) { trace.add("performed in \(loop.currentMode!)") } }
        queued.open()
        try waiter.join()
        try thread.join()
        #expect(trace.take() == "wrong default performed in right")
    }

    // MARK: On the loop's own thread

    @Test func `on the loop's own thread runs the body at once, before queued closures`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.perform { trace.add("queued") }
            loop.performBlock { trace.add("block") }
            let value = try loop.performAndWait {
                trace.add("inline")
                return 3
            }
            #expect(value == 3)
            #expect(trace.take() == "inline")
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "E T S block queued X")
        }
    }

    @Test(arguments: Callout.allCases)
    func `inside a callout runs the body at once, in any mode:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let seen = Trace()
            try callout.arrange(loop, clock, trace) {
                seen.add("(")
                try? loop.performAndWait(inModes: ["another"]) { seen.add("inline in \(loop.currentMode!)") }
                seen.add(")")
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(seen.take() == "( inline in default )")
        }
    }

    @Test func `on the loop's own thread is not a handled source`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.atFirst(.beforeTimers) { try? loop.performAndWait { trace.add("inline") } }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "inline")
        }
    }

    @Test func `on the loop's own thread throws the body's error, and ignores the timeout`() throws {
        try onFreshThread { loop in
            #expect(throws: Failure(number: 1)) { try loop.performAndWait { throw Failure(number: 1) } }
            let values = [try loop.performAndWait(timeout: .zero) { 4 }, try loop.performAndWait(timeout: .seconds(-1)) { 5 }]
            #expect(values == [4, 5])
        }
    }

    // MARK: Timeout

    @Test(arguments: [Duration.zero, .seconds(-1), .milliseconds(1)])
    func `withdraws the body if the timeout passes first`(_ timeout: Duration) throws {
        let (asked, published, ready) = (Gate(), Box<RunLoop?>(nil), Gate())
        let trace = Trace()
        let thread = joinableThread { loop in
            loop.addIdleSource()
            published.value = loop
            ready.open()
            asked.wait()
            return loop.run(for: .zero, returnAfterSourceHandled: true)
        }
        ready.wait()
        #expect(throws: PerformTimedOut.self) { try published.value!.performAndWait(timeout: timeout) { trace.add("performed") } }
        asked.open()
        // The withdrawn body leaves nothing behind: the loop handled no source.
        #expect(try thread.join() == .timedOut)
        #expect(trace.take() == "")
    }

    @Test func `does not keep a mode from being empty after the body is withdrawn`() throws {
        let (asked, published, ready) = (Gate(), Box<RunLoop?>(nil), Gate())
        let trace = Trace()
        let thread = joinableThread { loop in
            trace.observe(loop)
            published.value = loop
            ready.open()
            asked.wait()
            return loop.run(for: patience)
        }
        ready.wait()
        #expect(throws: PerformTimedOut.self) { try published.value!.performAndWait(timeout: .zero) {} }
        asked.open()
        #expect(try thread.join() == .finished)
        #expect(trace.take() == "")
    }

    @Test func `waits for the body if the timeout passes while the body runs`() throws {
        let running = RunningLoop()
        // On a busy machine the body may begin too late. Then it must not run, and the test retries with a longer timeout.
        for milliseconds in [20, 100, 500, 2_500] {
            let begun = Counter()
            let start = ContinuousClock.now
            do {
                let value = try running.loop.performAndWait(timeout: .milliseconds(milliseconds)) {
                    begun.increment()
                    try waitUntil("time to pass") { ContinuousClock.now - start > .milliseconds(milliseconds + 5) }
                    return 9
                }
                #expect(value == 9)
                #expect(begun.value == 1)
                break
            } catch is PerformTimedOut {
                try running.loop.performAndWait {}
                #expect(begun.value == 0)
            }
        }
        try running.end()
    }

    @Test func `with a timeout that does not pass behaves as without a timeout`() throws {
        let running = RunningLoop()
        #expect(try running.loop.performAndWait(timeout: patience) { 1 } == 1)
        #expect(throws: Failure(number: 2)) { try running.loop.performAndWait(timeout: patience) { throw Failure(number: 2) } }
        try running.end()
    }

    @Test func `either runs the body or throws, however the timeout and the loop race`() throws {
        let running = RunningLoop()
        for round in 0..<500 {
            let begun = Counter()
            do {
                try running.loop.performAndWait(timeout: .microseconds(round % 50)) { _ = begun.increment() }
                #expect(begun.value == 1)
            } catch is PerformTimedOut {
                #expect(begun.value == 0)
            }
        }
        try running.end()
    }

    // MARK: The end

    @Test func `throws at once on a loop that has ended`() throws {
        let loop = try onFreshThread { $0 }
        #expect(throws: RunLoopEnded.self) { try loop.performAndWait {} }
        #expect(throws: RunLoopEnded.self) { try loop.performAndWait(inModes: ["any"], timeout: patience) {} }
    }

    @Test(arguments: [nil, patience])
    func `throws if the loop's thread ends first`(_ timeout: Duration?) throws {
        // Repeats many times: the loop must release the closure before the waiting thread returns, and both happen at the same time.
        for _ in 1...100 {
            let (leave, published, ready) = (Gate(), Box<RunLoop?>(nil), Gate())
            let performed = Counter()
            let thread = joinableThread { loop in
                published.value = loop
                ready.open()
                leave.wait()
            }
            ready.wait()
            let loop = published.value!
            let waiters = (1...3).map { _ in
                plainThread {
                    #expect(throws: RunLoopEnded.self) { try loop.performAndWait(timeout: timeout) { _ = performed.increment() } }
                }
            }
            leave.open()
            for waiter in waiters { try waiter.join() }
            try thread.join()
            #expect(performed.value == 0)
        }
    }

    @Test func `with no modes traps`() async {
        await #expect(processExitsWith: .failure) {
            performInNoMode(of: RunningLoop().loop)
        }
    }

    @Test func `with no modes also traps on the loop's own thread`() async {
        await #expect(processExitsWith: .failure) {
            try? onFreshThread { loop in performInNoMode(of: loop) }
        }
    }
}
