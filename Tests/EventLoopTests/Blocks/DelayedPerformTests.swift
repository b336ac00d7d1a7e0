// Rules proved here:
// - `perform(after:)` adds a one-shot timer. It is never early and is not a handled source. It is in the default mode unless the caller
//   names others. The loop calls it once, in the first run of any of its modes after its date. Delayed performs with equal dates run in the
//   order of the requests. A delayed perform without a delay waits for the next pass.
// - The token cancels the delayed perform and says whether it is pending. `cancelDelayedPerforms` cancels those of one target on one loop.
// - Any thread may request a delayed perform; a loop that has ended refuses it.

import EventLoop
import EventLoopTestSupport
import Testing

private final class Target: Sendable {}

@Suite(.tags(.threads)) struct `A delayed perform` {
    @Test func `is a timer, not a source`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            let token = loop.perform(after: .milliseconds(500)) { trace.add("perform \(clock.now.nanoseconds)") }
            #expect(token.isValid)
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "E T S W A perform 500000000 T S W A X")
            #expect(!token.isValid)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    @Test func `keeps its mode from being empty until it has run, whether or not the token is kept`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.perform(after: .seconds(1)) { trace.add("perform") }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "E T S W A perform X")
        }
    }

    @Test func `is never early`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.perform(after: .seconds(1)) { trace.add("perform") }
            #expect(loop.run(for: .nanoseconds(999_999_999)) == .timedOut)
            #expect(trace.take() == "")
            clock.advance(by: .nanoseconds(1))
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "perform")
        }
    }

    @Test func `runs in date order, and in the order of the requests if dates are equal`() throws {
        try inManualTime { loop, clock, trace in
            for (name, milliseconds) in [("c1", 30), ("a1", 10), ("c2", 30), ("b", 20), ("a2", 10)] {
                loop.perform(after: .milliseconds(milliseconds)) { trace.add(name) }
            }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "a1 a2 b c1 c2")
        }
    }

    @Test func `runs in the order of the requests if equal dates have already passed`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            for name in ["1", "2", "3"] { loop.perform(after: .milliseconds(1)) { trace.add(name) } }
            clock.advance(by: .seconds(1))
            #expect(loop.run() == .finished)
            #expect(trace.take() == "E T S W A 1 2 3 X")
        }
    }

    @Test(arguments: [Duration.zero, .seconds(-1), .seconds(Int64.min)])
    func `without a delay waits for the next pass`(_ delay: Duration) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.perform(after: .zero) {
                trace.add("first")
                loop.perform(after: delay) { trace.add("second") }
            }
            #expect(trace.take() == "")
            #expect(loop.run() == .finished)
            #expect(trace.take() == "E T S W A first T S W A second X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test func `without a delay that requeues itself does not starve other items`() throws {
        try inManualTime { loop, clock, trace in
            let again = Box<(@Sendable () -> Void)?>(nil)
            let rounds = Counter()
            again.value = {
                guard rounds.increment() < 20 else { return loop.stop() }
                loop.perform(after: .zero, again.value!)
            }
            loop.perform(after: .zero, again.value!)
            try loop.addReadyPipe { _ in trace.add("port") }
            loop.addSource(signaled: true) { _ in trace.add("source") }
            loop.performBlock { trace.add("block") }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.list.sorted() == ["block", "port", "source"])
            again.value = nil
        }
    }

    @Test(arguments: [Duration.seconds(Int64.max), .seconds(290 * 365 * 86_400)])
    func `with a very long delay is not early`(_ delay: Duration) throws {
        try inManualTime { loop, clock, trace in
            let token = loop.perform(after: delay) { trace.add("perform") }
            #expect(loop.run(for: .seconds(1_000_000)) == .timedOut)
            #expect(trace.take() == "")
            #expect(token.isValid)
            token.cancel()
        }
    }

    // MARK: Modes

    @Test func `is in the default mode unless the caller names others`() throws {
        try inManualTime { loop, clock, trace in
            loop.addCommonMode("joined")
            loop.addIdleSource(forMode: "joined")
            loop.perform(after: .milliseconds(1)) { trace.add("in \(loop.currentMode!)") }
            #expect(loop.run(mode: "joined", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "in default")
        }
    }

    @Test func `runs once, in the first of its modes that runs`() throws {
        try inManualTime { loop, clock, trace in
            for mode in ["a", "b", "c"] as [RunLoop.Mode] { loop.addIdleSource(forMode: mode) }
            loop.perform(after: .milliseconds(1), inModes: ["a", "b"]) { trace.add("in \(loop.currentMode!)") }
            for mode in ["c", "b", "a"] as [RunLoop.Mode] { #expect(loop.run(mode: mode, for: .seconds(1)) == .timedOut) }
            #expect(trace.take() == "in b")
        }
    }

    @Test func `for the common modes runs in any of them`() throws {
        try inManualTime { loop, clock, trace in
            loop.perform(after: .milliseconds(1), inModes: [.common]) { trace.add("in \(loop.currentMode!)") }
            loop.addCommonMode("late")
            #expect(loop.run(mode: "late", for: .seconds(1)) == .finished)
            #expect(trace.take() == "in late")
            #expect(loop.run(for: .seconds(1)) == .finished)
        }
    }

    @Test(arguments: [[.default, .default], [.default, .common], [.common, "other", .default, .common]] as [[RunLoop.Mode]])
    func `with equal or overlapping modes runs once and leaves nothing behind:`(_ modes: [RunLoop.Mode]) throws {
        try inManualTime { loop, _, trace in
            loop.perform(after: .seconds(1), inModes: modes) { trace.add("perform") }
            #expect(loop.run(for: .seconds(5)) == .finished)
            #expect(trace.take() == "perform")
            #expect(loop.run(mode: "other", for: .seconds(1)) == .finished)
        }
    }

    @Test func `with no modes never runs`() throws {
        try inManualTime { loop, clock, trace in
            loop.perform(after: .zero, inModes: []) { trace.add("perform") }
            #expect(loop.run(for: .seconds(1)) == .finished)
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    // MARK: Cancelling

    @Test func `does not run after it is cancelled, and its mode is empty`() throws {
        try inManualTime { loop, clock, trace in
            let token = loop.perform(after: .milliseconds(1)) { trace.add("perform") }
            token.cancel()
            #expect(!token.isValid)
            token.cancel()
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `does not run if another one of the same date cancels it`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let second = Box<RunLoop.DelayedPerform?>(nil)
            loop.perform(after: .milliseconds(1)) {
                trace.add("first")
                second.value!.cancel()
            }
            second.value = loop.perform(after: .milliseconds(1)) { trace.add("second") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "first")
            second.value = nil
        }
    }

    @Test(arguments: Callout.allCases)
    func `does not run if a callout of the pass in which it is due cancels it:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let token = Box<RunLoop.DelayedPerform?>(nil)
            try callout.arrange(loop, clock, trace) { token.value!.cancel() }
            // Added after the callout's own timer, so that the callout runs first.
            token.value = loop.perform(after: callout == .port ? .milliseconds(1) : .zero) { trace.add("delayed") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(!trace.list.contains("delayed"))
            #expect(!token.value!.isValid)
            token.value = nil
        }
    }

    @Test func `does not run if another thread cancels it, and the run finishes if its mode is then empty`() throws {
        let published = Box<RunLoop.DelayedPerform?>(nil)
        let loopOf = Box<RunLoop?>(nil)
        let ready = Gate()
        let thread = joinableThread { loop in
            published.value = loop.perform(after: .seconds(1_000)) {}
            loopOf.value = loop
            ready.open()
            return loop.run(for: patience)
        }
        ready.wait()
        try waitUntilAsleep(loopOf.value!)
        published.value!.cancel()
        #expect(try thread.join() == .finished)
    }

    @Test func `is cancelled with the others of its target, not with those of another target`() throws {
        try inManualTime { loop, clock, trace in
            let (mine, other) = (Target(), Target())
            var tokens = (1...3).map { number in loop.perform(after: .milliseconds(number), target: mine) { trace.add("mine") } }
            tokens.append(loop.perform(after: .milliseconds(1), target: other) { trace.add("other") })
            tokens.append(loop.perform(after: .milliseconds(2)) { trace.add("nobody's") })
            tokens.append(loop.perform(after: .milliseconds(2), inModes: ["elsewhere"], target: mine) { trace.add("mine") })
            loop.cancelDelayedPerforms(target: mine)
            #expect(tokens.map(\.isValid) == [false, false, false, true, true, false])
            #expect(loop.run() == .finished)
            #expect(trace.take() == "other nobody's")
            #expect(loop.run(mode: "elsewhere", for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `is not cancelled with its target if it is on another loop`() throws {
        try inManualTime { loop, clock, trace in
            let target = Target()
            let token = loop.perform(after: .seconds(1), target: target) { trace.add("here") }
            try onFreshThread { other in other.cancelDelayedPerforms(target: target) }
            #expect(token.isValid)
            #expect(loop.run() == .finished)
            #expect(trace.take() == "here")
        }
    }

    @Test func `runs if it is requested after its target was cancelled`() throws {
        try inManualTime { loop, clock, trace in
            let target = Target()
            loop.cancelDelayedPerforms(target: target)
            loop.perform(after: .milliseconds(1), target: target) { trace.add("first") }
            loop.cancelDelayedPerforms(target: target)
            loop.perform(after: .milliseconds(1), target: target) { trace.add("second") }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "second")
        }
    }

    @Test func `performs and blocks are not cancelled with a target`() throws {
        try inManualTime { loop, clock, trace in
            let target = Target()
            loop.perform(inModes: [.default]) { [target] in
                _ = target
                trace.add("perform")
            }
            loop.performBlock { [target] in
                _ = target
                trace.add("block")
            }
            loop.cancelDelayedPerforms(target: target)
            #expect(loop.run() == .finished)
            #expect(trace.list.sorted() == ["block", "perform"])
        }
    }

    @Test func `releases its body when it is cancelled or has run`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let tokens = ["cancelled", "done"].map { name in
                let canary = Canary { trace.add("\(name) released") }
                return loop.perform(after: .milliseconds(1)) { canary.touch() }
            }
            tokens[0].cancel()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "cancelled released done released")
            withExtendedLifetime(tokens) {}
        }
    }

    // MARK: Across threads

    @Test func `can be requested by any thread, and reaches a sleeping loop`() throws {
        let performed = Gate()
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        let token = try plainThread { running.loop.perform(after: .milliseconds(1)) { performed.open() } }.join()
        performed.wait()
        try running.end()
        #expect(!token.isValid)
    }

    // MARK: The end

    @Test func `is refused by a loop that has ended`() throws {
        let loop = try onFreshThread { $0 }
        let token = loop.perform(after: .zero) {}
        #expect(!token.isValid)
        token.cancel()
        loop.cancelDelayedPerforms(target: Target())
    }

    @Test func `is invalid once its loop has ended`() throws {
        let (performed, released) = (Counter(), Counter())
        let token = try onFreshThread { loop in
            let canary = Canary { released.increment() }
            return loop.perform(after: .zero) {
                canary.touch()
                performed.increment()
            }
        }
        #expect(!token.isValid)
        #expect(performed.value == 0)
        #expect(released.value == 1)
    }
}
