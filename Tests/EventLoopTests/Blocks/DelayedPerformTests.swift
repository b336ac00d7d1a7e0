// Rules proved here:
// - `perform(after:)` is a one-shot timer: never early, no handled source; in the default mode unless it says otherwise; once, in the first
//   run of any of its modes after its date. Equal dates go in the order they were asked for. No delay is at least one pass.
// - Its token cancels it and tells whether it is still to come; `cancelDelayedPerforms` cancels those of one target on one loop.
// - Any thread may ask; a loop that has ended refuses.

import EventLoop
import EventLoopTestSupport
import Testing

private final class Target: Sendable {}

@Suite struct `A delayed perform` {
    @Test func `is a timer, no source`() throws {
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

    @Test func `keeps its mode until it is done, whether the token is kept or not`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.perform(after: .seconds(1)) { trace.add("perform") }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "E T S W A perform X")
        }
    }

    @Test func `is not early`() throws {
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

    @Test func `goes by date, and by the order asked for where dates are equal`() throws {
        try inManualTime { loop, clock, trace in
            for (name, milliseconds) in [("c1", 30), ("a1", 10), ("c2", 30), ("b", 20), ("a2", 10)] {
                loop.perform(after: .milliseconds(milliseconds)) { trace.add(name) }
            }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "a1 a2 b c1 c2")
        }
    }

    @Test func `of equal dates goes in the order asked for when they are late, too`() throws {
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

    @Test func `without a delay that repeats itself lets everything else happen`() throws {
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
    func `that is very far is not early`(_ delay: Duration) throws {
        try inManualTime { loop, clock, trace in
            let token = loop.perform(after: delay) { trace.add("perform") }
            #expect(loop.run(for: .seconds(1_000_000)) == .timedOut)
            #expect(trace.take() == "")
            #expect(token.isValid)
            token.cancel()
        }
    }

    // MARK: Modes

    @Test func `is for the default mode unless it says otherwise`() throws {
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

    @Test func `is done once, in the first of its modes that runs`() throws {
        try inManualTime { loop, clock, trace in
            for mode in ["a", "b", "c"] as [RunLoop.Mode] { loop.addIdleSource(forMode: mode) }
            loop.perform(after: .milliseconds(1), inModes: ["a", "b"]) { trace.add("in \(loop.currentMode!)") }
            for mode in ["c", "b", "a"] as [RunLoop.Mode] { #expect(loop.run(mode: mode, for: .seconds(1)) == .timedOut) }
            #expect(trace.take() == "in b")
        }
    }

    @Test func `for the common modes is done in any of them`() throws {
        try inManualTime { loop, clock, trace in
            loop.perform(after: .milliseconds(1), inModes: [.common]) { trace.add("in \(loop.currentMode!)") }
            loop.addCommonMode("late")
            #expect(loop.run(mode: "late", for: .seconds(1)) == .finished)
            #expect(trace.take() == "in late")
            #expect(loop.run(for: .seconds(1)) == .finished)
        }
    }

    @Test(arguments: [[.default, .default], [.default, .common], [.common, "other", .default, .common]] as [[RunLoop.Mode]])
    func `whose modes are the same, or overlap, is done once and leaves nothing:`(_ modes: [RunLoop.Mode]) throws {
        try inManualTime { loop, _, trace in
            loop.perform(after: .seconds(1), inModes: modes) { trace.add("perform") }
            #expect(loop.run(for: .seconds(5)) == .finished)
            #expect(trace.take() == "perform")
            #expect(loop.run(mode: "other", for: .seconds(1)) == .finished)
        }
    }

    @Test func `with no modes is never performed`() throws {
        try inManualTime { loop, clock, trace in
            loop.perform(after: .zero, inModes: []) { trace.add("perform") }
            #expect(loop.run(for: .seconds(1)) == .finished)
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    // MARK: Cancelling

    @Test func `that was cancelled is not performed, and its mode is empty`() throws {
        try inManualTime { loop, clock, trace in
            let token = loop.perform(after: .milliseconds(1)) { trace.add("perform") }
            token.cancel()
            #expect(!token.isValid)
            token.cancel()
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `that another one of the same date cancels is not performed`() throws {
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
    func `cancelled from a callout of the pass it is due in is not performed:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let token = Box<RunLoop.DelayedPerform?>(nil)
            try callout.arrange(loop, clock, trace) { token.value!.cancel() }
            // After the callout's own timer, so that this one goes first.
            token.value = loop.perform(after: callout == .port ? .milliseconds(1) : .zero) { trace.add("delayed") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(!trace.list.contains("delayed"))
            #expect(!token.value!.isValid)
            token.value = nil
        }
    }

    @Test func `cancelled from another thread is not performed, and a loop left with nothing finishes`() throws {
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

    @Test func `of one target is cancelled with its target's others, not with those of another`() throws {
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

    @Test func `of one target on another loop is not cancelled`() throws {
        try inManualTime { loop, clock, trace in
            let target = Target()
            let token = loop.perform(after: .seconds(1), target: target) { trace.add("here") }
            try onFreshThread { other in other.cancelDelayedPerforms(target: target) }
            #expect(token.isValid)
            #expect(loop.run() == .finished)
            #expect(trace.take() == "here")
        }
    }

    @Test func `asked for after its target was cancelled is performed`() throws {
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

    @Test func `that was cancelled or is done releases its body`() throws {
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

    @Test func `may be asked for by any thread, and reaches a loop that sleeps`() throws {
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
