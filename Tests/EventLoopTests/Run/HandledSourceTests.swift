// Rules proved here:
// - With `returnAfterSourceHandled`, a performed custom source, a perform or a served port ends the run with `.handledSource`. A timer, a
//   delayed perform, a block, a wake-up, an observer, or a source that a nested run handled does not.
// - Such a run performs one custom source or serves one port. Its pass still checks once for a port and for due timers.
// - Without that option no handled source ends the run.
// - One pass carries out all performs that are queued for the mode.

import EventLoop
import EventLoopTestSupport
import Testing

/// An event in a run, and whether it is a handled source.
enum Happening: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case customSource, perform, performInCommon, port, timer, delayedPerform, block, wakeUp, observer, sourceOfANestedRun
    var testDescription: String { rawValue }

    var isHandledSource: Bool {
        switch self {
        case .customSource, .perform, .performInCommon, .port: true
        default: false
        }
    }

    func arrange(_ loop: RunLoop, _ clock: RunLoop.ManualClock, body: @escaping @Sendable () -> Void) throws {
        switch self {
        case .customSource: loop.addSource(signaled: true) { _ in body() }
        case .perform: loop.perform(inModes: [.default], body)
        case .performInCommon: loop.perform(body)
        case .port: try loop.addReadyPipe { _ in body() }
        case .timer: loop.addTimer(at: clock.now) { _ in body() }
        case .delayedPerform: loop.perform(after: .zero, body)
        case .block: loop.performBlock(body)
        case .wakeUp:
            loop.atFirst(.beforeWaiting) {
                loop.wakeUp()
                body()
            }
        case .observer: loop.atFirst(.beforeSources, do: body)
        case .sourceOfANestedRun:
            loop.addSource(forMode: "nested", signaled: true) { _ in body() }
            loop.atFirst(.beforeTimers) {
                #expect(loop.run(mode: "nested", for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            }
        }
    }
}

@Suite struct `A handled source` {
    @Test(arguments: Happening.allCases)
    func `ends a run that asked for it, and other events do not:`(_ happening: Happening) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            try happening.arrange(loop, clock) { trace.add("done") }
            let result = loop.run(for: .seconds(5), returnAfterSourceHandled: true)
            #expect(trace.take() == "done")
            #expect(result == (happening.isHandledSource ? .handledSource : .timedOut))
            #expect(clock.now == RunLoop.Instant(nanoseconds: happening.isHandledSource ? 0 : 5_000_000_000))
        }
    }

    @Test(arguments: Happening.allCases)
    func `does not end a run that did not ask for it:`(_ happening: Happening) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            try happening.arrange(loop, clock) { trace.add("done") }
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            #expect(trace.take() == "done")
        }
    }

    @Test(arguments: Happening.allCases)
    func `counts even in a run with limit 0:`(_ happening: Happening) throws {
        guard happening != .wakeUp else { return }  // a run with limit 0 has no sleep, and so no wake-up
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            try happening.arrange(loop, clock) { trace.add("done") }
            let result = loop.run(for: .zero, returnAfterSourceHandled: true)
            #expect(trace.take() == "done")
            #expect(result == (happening.isHandledSource ? .handledSource : .timedOut))
        }
    }

    // MARK: What else a pass does

    @Test func `each run performs the next custom source in order`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            for (name, order) in [("b", 2), ("a", 1), ("c", 3)] {
                loop.addSource(order: order, signaled: true) { _ in trace.add(name) }
            }
            for name in ["a", "b", "c"] {
                #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
                #expect(trace.take() == "E T S \(name) X")
            }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    @Test func `a run that did not ask for a return performs every custom source in one pass`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            for (name, order) in [("b", 2), ("a", 1), ("c", 3)] {
                loop.addSource(order: order, signaled: true) { _ in trace.add(name) }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S a b c T S W A X")
        }
    }

    @Test func `a pass that performs a custom source still fires the due timers`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in trace.add("source") }
            loop.addTimer(at: clock.now) { _ in trace.add("timer1") }
            loop.addTimer(at: clock.now) { _ in trace.add("timer2") }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "E T S source timer1 timer2 X")
        }
    }

    @Test func `a pass that performs a custom source still serves one port`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in trace.add("source") }
            for _ in 1...2 { try loop.addReadyPipe { _ in trace.add("port") } }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "E T S source port X")
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "E T S port X")
        }
    }

    @Test func `each run serves one port, and the others stay ready`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            for _ in 1...3 { try loop.addReadyPipe { _ in trace.add("port") } }
            for _ in 1...3 {
                #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
                #expect(trace.take() == "E T S port X")
            }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    @Test func `one run carries out all queued performs`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            for number in 1...3 { loop.perform { trace.add("\(number)") } }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "E T S 1 2 3 X")
        }
    }

    @Test func `the run continues after a pass that fired a timer`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.addTimer(at: clock.now + .milliseconds(1)) { _ in trace.add("timer") }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "E T S W A timer T S W A X")
        }
    }

    @Test func `blocks queued by the source run before the run returns`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in
                trace.add("source")
                loop.performBlock { trace.add("block") }
            }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "E T S source block X")
        }
    }

    @Test func `a signaled source of another mode does not end the run`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.addSource(forMode: "other", signaled: true) { _ in trace.add("source") }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "")
        }
    }
}
