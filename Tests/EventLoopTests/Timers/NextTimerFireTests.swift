// The next fire of a mode (semantics 5.13, 2.12), against a search of all timers.

import EventLoopTestSupport
import Synchronization
import Testing

@testable import EventLoop

/// Timers of every kind, in some modes of a loop in manual time. After each operation, and in each handler, the loop's answer is compared
/// with that of a search.
private final class NextFirePlay {
    private let loop: RunLoop
    private let clock: RunLoop.ManualClock
    private var random: SplitMix64
    private var timers: [RunLoop.Timer] = []
    private let modes: [RunLoop.Mode] = [.default, "a", "b", "never run", .common]
    private var depth = 0
    private(set) var handlersAsked = 0

    init(_ loop: RunLoop, _ clock: RunLoop.ManualClock, seed: UInt64) {
        (self.loop, self.clock, random) = (loop, clock, SplitMix64(seed: seed))
    }

    private func compare(_ question: String) throws(Divergence) {
        for mode in modes {
            let dates = timers.filter { $0.isValid && loop.contains($0, forMode: mode) }.map { $0.date.load(ordering: .relaxed) }
            let earliest = dates.filter { $0 != .max }.min()
            try agree(loop.nextTimerFire(forMode: mode)?.nanoseconds, earliest, "\(question), mode \(mode)")
        }
    }

    private var divergence: Divergence?

    private func compareInHandler(_ timer: RunLoop.Timer) {
        handlersAsked += 1
        do throws(Divergence) {
            try compare("in a handler")
            if random.below(3) == 0 { try operate(timer) }
            // A nested run of any mode.
            if depth < 3 && random.below(5) == 0 {
                depth += 1
                _ = loop.run(mode: random.pick([.default, "a", "b"]), until: .distantPast)
                depth -= 1
            }
            try compare("at the end of a handler")
        } catch { divergence = divergence ?? error }
    }

    private func makeTimer() -> RunLoop.Timer {
        // SAFETY: the handlers are called on the thread of the test.
        nonisolated(unsafe) let play = self
        let handler: @Sendable (RunLoop.Timer) -> Void = { play.compareInHandler($0) }
        let date = clock.now.advanced(by: .milliseconds(random.below(12) - 2))
        let tolerance: Duration = random.pick([.zero, .zero, .milliseconds(3)])
        switch random.below(3) {
        case 0: return RunLoop.Timer(fireAt: date, tolerance: tolerance, handler: handler)
        case 1: return RunLoop.Timer(fireAt: date, interval: .milliseconds(1 + random.below(5)), tolerance: tolerance, handler: handler)
        default: return RunLoop.Timer.onDemand(handler: handler)
        }
    }

    private func operate(_ chosen: RunLoop.Timer? = nil) throws(Divergence) {
        if timers.count < 12 && random.below(4) == 0 { timers.append(makeTimer()) }
        guard let timer = chosen ?? timers.randomElement(using: &random) else { return }
        switch random.below(10) {
        case 0..<3: loop.add(timer, forMode: random.pick(modes))
        case 3..<5: loop.remove(timer, forMode: random.pick(modes))
        case 5..<7: timer.nextFire = clock.now.advanced(by: .milliseconds(random.below(20) - 5))
        case 7: timer.nextFire = .distantFuture
        case 8: timer.tolerance = .milliseconds(random.below(4))
        default:
            timer.invalidate()
            timers.removeAll { !$0.isValid }
        }
        try compare("after an operation")
    }

    func step() throws(Divergence) {
        switch random.below(8) {
        case 0: clock.advance(by: .milliseconds(random.below(4)))
        case 1..<3:
            _ = loop.run(mode: random.pick([.default, "a", "b"]), until: .distantPast)
            timers.removeAll { !$0.isValid }
        case 3 where random.below(40) == 0: loop.addCommonMode(random.pick(["a", "never run"]))
        default: try operate()
        }
        if let divergence { throw divergence }
        try compare("after a step")
    }

    func finish() { for timer in timers { timer.invalidate() } }
}

@Suite(.tags(.lifetimes)) struct NextTimerFireTests {
    @Test func `random timers have the next fire that a search finds, in handlers too`() throws {
        let handlersAsked = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            var handlersAsked = 0
            for seed in 0..<60 {
                let play = NextFirePlay(loop, clock, seed: UInt64(seed))
                for step in 0..<300 {
                    do throws(Divergence) { try play.step() } catch { throw Divergence("seed \(seed), step \(step): \(error)") }
                }
                play.finish()
                handlersAsked += play.handlersAsked
            }
            return handlersAsked
        }
        #expect(handlersAsked > 1_000)
    }

    /// The queues do not retain them, and the loop has released them.
    @Test func `the queues of a loop that has ended have no timers, not even in its last callouts`() throws {
        let found = Box<(isEmpty: Bool, next: RunLoop.Instant?)?>(nil)
        try onFreshThread { loop in
            loop.add(RunLoop.Timer(fireAt: .now + .seconds(1_000)) { _ in })
            loop.add(
                RunLoop.CustomSource(
                    cancel: { loop, _ in found.value = (loop.modeTable[0].owned.timers.isEmpty, loop.nextTimerFire()) }, perform: {}))
            _ = loop.run(for: .zero)
        }
        #expect(found.value?.isEmpty == true && found.value?.next == nil)
    }

    @Test func `a timer that another thread added or moved counts at once`() throws {
        try onFreshThread { loop in
            let timer = RunLoop.Timer(fireAt: .ms(2_000_000_000)) { _ in }
            try plainThread { loop.add(timer) }.join()
            #expect(loop.nextTimerFire() == .ms(2_000_000_000))
            try plainThread { timer.nextFire = .ms(1_000_000_000) }.join()
            #expect(loop.nextTimerFire() == .ms(1_000_000_000))
            try plainThread { timer.invalidate() }.join()
            #expect(loop.nextTimerFire() == nil)
        }
    }

    @Test func `a timer that moves to this loop while another loop fires it counts all the time`() throws {
        let (inHandler, mayReturn) = (Gate(), Gate())
        let firing = Box<RunLoop?>(nil)
        let timer = RunLoop.Timer(fireAt: .ms(1), interval: .seconds(1_000_000_000)) { _ in
            inHandler.open()
            mayReturn.wait()
        }
        let other = joinableThread { loop in
            firing.value = loop
            loop.add(timer)
            _ = loop.run(until: .distantPast)
        }
        inHandler.wait()
        let answers = try onFreshThread { loop in
            firing.value!.remove(timer)
            loop.add(timer)
            let during = loop.nextTimerFire()
            mayReturn.open()
            try other.join()
            return (during, loop.nextTimerFire(), timer.nextFire)
        }
        #expect(answers.0 == .ms(1))
        #expect(answers.1 == answers.2 && answers.1! > .ms(1))
    }
}
