// Rules proved here:
// - A source that an earlier one of the same pass invalidated or removed is not performed; a removed one keeps its signal.
// - A source that invalidates or removes itself finishes its callout, and the run may then be finished.
// - It may be performed again in a nested run from its own perform.
// - Across threads: a signal alone wakes nobody, with a wake-up it is served at once; adding a source wakes the loop; removing and
//   invalidating do not wait for a callout in progress, and none begins after it.

import EventLoop
import EventLoopTestSupport
import Testing

/// What one callout does to a source that is signaled for the same pass.
enum Removal: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case remove, removeFromCommon, invalidate, removeAndAdd
    var testDescription: String { rawValue }

    func apply(to source: RunLoop.CustomSource, in loop: RunLoop) {
        switch self {
        case .remove: loop.remove(source)
        case .removeFromCommon: loop.remove(source, forMode: .common)
        case .invalidate: source.invalidate()
        case .removeAndAdd:
            loop.remove(source)
            loop.add(source)
        }
    }
}

@Suite struct `The life of a custom source` {
    @Test(arguments: Callout.allCases, Removal.allCases)
    func `a source that a callout takes away is not performed`(_ callout: Callout, _ removal: Removal) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let source = RunLoop.CustomSource(order: 1, cancel: { _, _ in trace.add("cancel") }) { trace.add("performed") }
            loop.add(source, forMode: removal == .removeFromCommon ? .common : .default)
            try callout.arrange(loop, clock, Trace()) {
                source.signal()
                removal.apply(to: source, in: loop)
                trace.add("callout")
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            if removal == .removeAndAdd {
                #expect(trace.take() == "cancel callout performed")
            } else {
                #expect(trace.take() == "cancel callout")
                #expect(source.isSignaled == (removal != .invalidate))
            }
        }
    }

    @Test(arguments: Removal.allCases)
    func `an earlier source of the pass takes a later one away`(_ removal: Removal) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let second = RunLoop.CustomSource(order: 2, cancel: { _, _ in trace.add("cancel") }) { trace.add("second") }
            loop.add(second, forMode: removal == .removeFromCommon ? .common : .default)
            second.signal()
            loop.addSource(order: 1, signaled: true) { _ in
                trace.add("first")
                removal.apply(to: second, in: loop)
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            let seen = trace.take()
            switch removal {
            case .removeAndAdd:
                // It is in the mode again, and its signal is still set: in this pass or, being new, in the next.
                #expect(["E T S first cancel second T S W A X", "E T S first cancel T S second T S W A X"].contains(seen))
            default:
                #expect(seen == "E T S first cancel T S W A X")
                #expect(second.isSignaled == (removal != .invalidate))
            }
        }
    }

    @Test func `a removed source is performed when it is added again`() throws {
        try inManualTime { loop, clock, trace in
            let second = loop.addSource(order: 2, signaled: true) { _ in trace.add("second") }
            loop.addSource(order: 1, signaled: true) { _ in loop.remove(second) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            loop.add(second)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "second")
        }
    }

    @Test func `a source that is removed from another mode only is performed`() throws {
        try inManualTime { loop, clock, trace in
            let second = loop.addSource(order: 2, signaled: true) { _ in trace.add("second") }
            loop.add(second, forMode: "other")
            loop.addSource(order: 1, signaled: true) { _ in loop.remove(second, forMode: "other") }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "second")
        }
    }

    @Test func `a source that is moved to another mode is not performed in this one`() throws {
        try inManualTime { loop, clock, trace in
            let second = loop.addSource(order: 2, signaled: true) { _ in trace.add("second") }
            loop.addSource(order: 1, signaled: true) { _ in
                loop.add(second, forMode: "other")
                loop.remove(second)
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "other", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "second")
        }
    }

    @Test(arguments: [Removal.remove, .invalidate])
    func `a source that takes itself away finishes its callout, then the run`(_ removal: Removal) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let itself = WeakReference<RunLoop.CustomSource>()
            let source = RunLoop.CustomSource(cancel: { _, _ in trace.add("cancel") }) {
                trace.add("(")
                removal.apply(to: itself.value!, in: loop)
                trace.add(")")
            }
            itself.value = source
            loop.add(source)
            source.signal()
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "E T S ( cancel ) X")
        }
    }

    @Test func `a source is performed again by a nested run from its own perform`() throws {
        try inManualTime { loop, clock, trace in
            let depth = Counter()
            loop.addSource(signaled: true) { source in
                let level = depth.increment()
                trace.add("(\(level)")
                if level < 3 {
                    source.signal()
                    #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
                }
                trace.add("\(level))")
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "(1 (2 (3 3) 2) 1)")
        }
    }

    // MARK: Across threads

    @Test func `a signal alone does not wake the loop`() throws {
        let performed = Counter()
        let source = RunLoop.CustomSource { performed.increment() }
        let running = RunningLoop { loop in loop.add(source) }
        try waitUntilAsleep(running.loop)
        source.signal()
        // Nothing else wakes the loop, so a correct one sleeps for as long as we care to look.
        for _ in 1...2_000 {
            #expect(running.loop.isWaiting)
            breathe()
        }
        #expect(performed.value == 0)
        #expect(source.isSignaled)
        running.loop.wakeUp()
        try waitUntil("the signal") { performed.value == 1 }
        try running.end()
    }

    @Test func `adding a source wakes the loop`() throws {
        let performed = Gate()
        let source = RunLoop.CustomSource { performed.open() }
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        source.signal()
        running.loop.add(source)
        performed.wait()
        try running.end()
    }

    @Test func `adding a source for the common modes wakes the loop`() throws {
        let performed = Gate()
        let source = RunLoop.CustomSource { performed.open() }
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        source.signal()
        running.loop.add(source, forMode: .common)
        performed.wait()
        try running.end()
    }

    @Test func `a signal with a wake-up during a callout is served after it`() throws {
        let (entered, leave, performed) = (Gate(), Gate(), Gate())
        let source = RunLoop.CustomSource { performed.open() }
        let running = RunningLoop { loop in
            loop.add(source)
            loop.addSource(signaled: true) { _ in
                entered.open()
                leave.wait()
            }
        }
        entered.wait()
        source.signal()
        running.loop.wakeUp()
        leave.open()
        performed.wait()
        try running.end()
    }

    @Test(arguments: [Removal.remove, .invalidate])
    func `taking a source away does not wait for its callout, and none follows`(_ removal: Removal) throws {
        let (entered, leave) = (Gate(), Gate())
        let trace = Trace()
        let itself = WeakReference<RunLoop.CustomSource>()
        let source = RunLoop.CustomSource {
            trace.add("(")
            itself.value!.signal()
            entered.open()
            leave.wait()
            trace.add(")")
        }
        itself.value = source
        let running = RunningLoop { loop in
            loop.add(source)
            source.signal()
        }
        entered.wait()
        removal.apply(to: source, in: running.loop)  // Returns, though the callout waits for the line after it.
        trace.add("gone")
        leave.open()
        #expect(try running.end() == .stopped)
        #expect(trace.take() == "( gone )")
    }

    @Test func `a source handled by another thread's loop may be invalidated by either`() throws {
        // No crash and no perform after the end, whoever is quicker.
        for _ in 1...200 {
            let performed = Counter()
            let source = RunLoop.CustomSource { performed.increment() }
            let thread = joinableThread { loop in
                loop.add(source)
                return loop.run(for: patience)
            }
            source.signal()
            source.invalidate()
            #expect(!source.isValid)
            #expect(try thread.join() == .finished)
            #expect(performed.value <= 1)
        }
    }
}
