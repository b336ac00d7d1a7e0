// Rules proved here:
// - If an earlier source of the same pass invalidates or removes a source, the source is not performed; a removed source keeps its signal.
// - A source that invalidates or removes itself completes its callout, and the run may finish afterwards.
// - A nested run in a source's own perform may perform the source again.
// - Across threads: a signal alone does not wake the loop; with a wake-up, the loop serves it at once. Adding a source wakes the loop.
//   Removing and invalidating do not wait for a callout in progress, and no callout begins afterwards.

import EventLoop
import EventLoopTestSupport
import Testing

/// The way in which a callout removes a source that is signaled for the same pass.
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

@Suite(.tags(.lifetimes)) struct `The life of a custom source` {
    @Test(arguments: Callout.allCases, Removal.allCases)
    func `a source that a callout removes or invalidates is not performed`(_ callout: Callout, _ removal: Removal) throws {
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
    func `an earlier source of the pass can remove or invalidate a later source`(_ removal: Removal) throws {
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
                // The source is in the mode again, and its signal is still pending: it runs in this pass or, as a new source, in the next.
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

    @Test func `a source that is only removed from another mode is performed`() throws {
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
    func `a source that removes or invalidates itself completes its callout, then the run finishes`(_ removal: Removal) throws {
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

    @Test func `a nested run in a source's own perform can perform the source again`() throws {
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
        // Nothing else wakes the loop, so it sleeps for as long as the test checks.
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

    @Test func `a signal with a wake-up during a callout is served after the callout`() throws {
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
    func `removing or invalidating a source does not wait for its callout, and no callout follows`(_ removal: Removal) throws {
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
        removal.apply(to: source, in: running.loop)  // This returns although the callout waits for a later line.
        trace.add("gone")
        leave.open()
        #expect(try running.end() == .stopped)
        #expect(trace.take() == "( gone )")
    }

    @Test func `a source that another thread's loop handles may be invalidated by either thread`() throws {
        // Whichever thread is faster, nothing crashes and no perform follows the end.
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
