// Rules proved here:
// - A run in a mode that is empty or was never made returns `.finished` at once. It notifies no observer and makes no mode.
// - These keep a mode from being empty: a source of either kind, a timer, a queued block or perform, a keep-alive. Observers do not.
// - A one-shot timer counts until its callout has returned.
// - If a mode becomes empty during a pass, the run ends before the sleep. If the loop sleeps, it wakes and the run ends.

import EventLoop
import EventLoopTestSupport
import Testing

/// The kinds of content that a mode can have.
enum Content: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case customSource, descriptorSource, timer, onDemandTimer, block, perform, delayedPerform, keepAlive
    var testDescription: String { rawValue }

    /// Adds the content to `mode`. The caller retains the result for as long as the content is to last.
    func put(in loop: RunLoop, _ mode: RunLoop.Mode, at date: RunLoop.Instant) throws -> any Sendable {
        switch self {
        case .customSource: return loop.addIdleSource(forMode: mode)
        case .descriptorSource:
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in _ = pipe }
            loop.add(source, forMode: mode)
            return source
        case .timer: return loop.addTimer(forMode: mode, at: date) { _ in }
        case .onDemandTimer:
            let timer = RunLoop.Timer.onDemand { _ in }
            loop.add(timer, forMode: mode)
            return timer
        case .block: return loop.performBlock(inModes: [mode]) {}
        case .perform: return loop.perform(inModes: [mode]) {}
        case .delayedPerform: return loop.perform(after: .seconds(5), inModes: [mode]) {}
        case .keepAlive: return loop.keepAlive(forMode: mode)
        }
    }
}

@Suite struct `Whether a mode is empty` {
    @Test func `a run of an empty mode finishes at once and notifies nobody`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(loop.run(for: .seconds(1_000_000)) == .finished)
            #expect(loop.run(for: .zero) == .finished)
            #expect(loop.run() == .finished)
            #expect(trace.take() == "")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test func `a run in a mode that was never made does not make it`() throws {
        try onFreshThread { loop in
            #expect(loop.run(mode: "unheard of", for: .seconds(1)) == .finished)
            #expect(loop.modes == [.default])
        }
    }

    @Test func `a refused run does not change the current mode`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.atFirst(.beforeTimers) {
                #expect(loop.run(mode: "empty", for: .seconds(1)) == .finished)
                #expect(loop.currentMode == .default)
                #expect(loop.runDepth == 1)
                trace.add("seen")
            }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "seen")
        }
    }

    @Test func `observers leave a mode empty`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            trace.observe(loop, in: "watched")
            #expect(loop.modes.contains("watched"))
            #expect(loop.run(mode: "watched", for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test(arguments: Content.allCases)
    func `a mode is not empty with`(_ content: Content) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let held = try content.put(in: loop, .default, at: clock.now + .seconds(5))
            _ = loop.run(for: .zero)
            #expect(trace.list.first == "E")
            withExtendedLifetime(held) {}
        }
    }

    @Test(arguments: Content.allCases)
    func `a common mode is not empty when the common modes hold`(_ content: Content) throws {
        try inManualTime { loop, clock, trace in
            loop.addCommonMode("joined")
            trace.observe(loop, in: .common)
            let held = try content.put(in: loop, .common, at: clock.now + .seconds(5))
            _ = loop.run(mode: "joined", for: .zero)
            #expect(trace.list.first == "E")
            withExtendedLifetime(held) {}
        }
    }

    @Test(arguments: Content.allCases)
    func `a mode stays empty when another one holds`(_ content: Content) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let held = try content.put(in: loop, "another", at: clock.now + .seconds(5))
            #expect(loop.run(for: .zero) == .finished)
            #expect(trace.take() == "")
            withExtendedLifetime(held) {}
        }
    }

    @Test func `a one-shot timer counts until its callout has returned`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addTimer(at: clock.now + .seconds(1)) { _ in
                trace.add("(")
                #expect(loop.run(for: .zero) == .timedOut)
                trace.add(")")
            }
            #expect(loop.run(for: .seconds(5)) == .finished)
            #expect(trace.take() == "E T S W A ( E T S X ) X")
            #expect(loop.run(for: .seconds(5)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `a run of a mode that holds only a block ends after the block`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.performBlock { trace.add("block") }
            #expect(loop.run(for: .seconds(1_000_000)) == .finished)
            #expect(trace.take() == "E T S block X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test func `a run of a mode that holds only a perform ends after the perform`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.perform { trace.add("perform") }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "E T S perform X")
        }
    }

    @Test func `a run of a mode that holds only timers ends after the last timer`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addTimer(at: clock.now + .seconds(1)) { _ in trace.add("one") }
            loop.addTimer(at: clock.now + .seconds(2)) { _ in trace.add("two") }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "E T S W A one T S W A two X")
        }
    }
}

/// The ways in which the last item leaves a mode.
enum Emptying: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case removeSource, removeSourceKeptElsewhere, invalidateSource, removeTimer, removeTimerKeptElsewhere, invalidateTimer
    case cancelDelayedPerform, cancelKeepAlive, releaseKeepAlive
    var testDescription: String { rawValue }

    /// Adds an item to the default mode and returns a closure that removes it.
    func prepare(_ loop: RunLoop, far date: RunLoop.Instant) -> @Sendable () -> Void {
        switch self {
        case .removeSource:
            let source = loop.addIdleSource()
            return { loop.remove(source) }
        case .removeSourceKeptElsewhere:
            let source = loop.addIdleSource()
            loop.add(source, forMode: "elsewhere")
            return { loop.remove(source) }
        case .invalidateSource:
            let source = loop.addIdleSource()
            return { source.invalidate() }
        case .removeTimer:
            let timer = loop.addTimer(at: date) { _ in }
            return { loop.remove(timer) }
        case .removeTimerKeptElsewhere:
            let timer = loop.addTimer(at: date) { _ in }
            loop.add(timer, forMode: "elsewhere")
            return { loop.remove(timer) }
        case .invalidateTimer:
            let timer = loop.addTimer(at: date) { _ in }
            return { timer.invalidate() }
        case .cancelDelayedPerform:
            let token = loop.perform(after: .seconds(1_000)) {}
            return { token.cancel() }
        case .cancelKeepAlive:
            let token = loop.keepAlive()
            return { token.cancel() }
        case .releaseKeepAlive:
            let token = Box<RunLoop.KeepAlive?>(loop.keepAlive())
            return { token.value = nil }
        }
    }
}

@Suite struct `A mode that becomes empty` {
    @Test(arguments: Callout.allCases, Emptying.allCases)
    func `ends the run before the sleep`(_ callout: Callout, _ way: Emptying) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let empty = way.prepare(loop, far: clock.now + .seconds(1_000))
            try callout.arrange(loop, clock, trace, leaving: true, body: empty)
            #expect(loop.run(for: .seconds(1_000_000)) == .finished)
            let expected =
                switch callout {
                // The run finds the mode empty after step 4, before it notifies observers of a sleep.
                case .entry, .beforeTimers, .beforeSources: "E T S X"
                case .block: "E T S block X"
                default: callout.traceOfOnePass
                }
            #expect(trace.take() == expected)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test(arguments: Emptying.allCases)
    func `because of another thread ends the sleep`(_ way: Emptying) throws {
        let asleep = Gate()
        let published = Box<(RunLoop, @Sendable () -> Void)?>(nil)
        let thread = joinableThread { loop in
            // If the item is a token to be released, only the returned closure retains it.
            published.value = (loop, way.prepare(loop, far: .now + .seconds(1_000)))
            asleep.open()
            return loop.run(for: patience)
        }
        asleep.wait()
        let (loop, empty) = published.value!
        try waitUntilAsleep(loop)
        empty()
        #expect(try thread.join() == .finished)
    }

    @Test func `that is filled again before step 5 does not end the run`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            let source = loop.addIdleSource()
            loop.atFirst(.entry) { loop.remove(source) }
            loop.atFirst(.beforeSources) { loop.add(source) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    @Test func `only between a removal and an addition in one callout does not end the run`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            let source = loop.addIdleSource()
            loop.atFirst(.beforeWaiting) {
                loop.remove(source)
                loop.add(source)
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }
}
