// Rules proved here, for the Foundation forms of timers (docs/foundation.md):
// - A timer made without a date first fires one interval from now.
// - Zero, negative and tiny intervals of repeating timers count as 0.1 ms; NaN traps; intervals that are too long saturate.
// - fireDate is nextFire on the wall clock; a date that was set reads back exactly until the timer moves.
// - A timer keeps and uses its tolerance.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct TimerDateTests {
    @Test func `a timer made with an interval first fires one interval from now, and then on its grid`() throws {
        try inManualTime { loop, clock, trace in
            loop.add(Timer(timeInterval: 1.5, repeats: true) { _ in trace.add("r@\(clock.ms)") })
            loop.add(Timer(timeInterval: 2, repeats: false) { _ in trace.add("once@\(clock.ms)") })
            Timer.scheduledTimer(withTimeInterval: 0.1, repeats: false) { _ in trace.add("scheduled@\(clock.ms)") }
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            #expect(trace.description == "scheduled@100 r@1500 once@2000 r@3000 r@4500")
        }
    }

    @Test func `a timer made with a date fires at that date; without repeats, its interval has no effect`() throws {
        try inManualTime { loop, clock, trace in
            let date = Date(timeIntervalSinceNow: 3600)
            let once = Timer(fire: date, interval: 60, repeats: false) { _ in trace.add("once@\(clock.ms / 60_000)") }
            let often = Timer(fire: date, interval: 60, repeats: true) { _ in trace.add("often@\(clock.ms / 60_000)") }
            #expect([once.timeInterval, often.timeInterval] == [0, 60])
            // Half a minute later, so that the time that passes on the wall clock meanwhile does not change the number of minutes.
            for timer in [once, often] { timer.nextFire = timer.nextFire + .seconds(30) }
            loop.add(once)
            loop.add(often)
            _ = loop.run(for: .seconds(3600 + 119))
            #expect(trace.list.sorted() == ["often@60", "often@61", "once@60"])
        }
    }

    @Test(arguments: [Date.distantPast, Date(timeIntervalSinceReferenceDate: -Double.infinity), Date(timeIntervalSinceNow: -1)])
    func `a date in the past fires in the first pass`(date: Date) throws {
        try inManualTime { loop, clock, trace in
            loop.add(Timer(fire: date, interval: 0, repeats: false) { _ in trace.add("fired") })
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.description == "fired")
        }
    }

    @Test(arguments: [0, -3, 1e-12, -Double.infinity])
    func `a repeating timer's interval is at least a tenth of a millisecond`(interval: TimeInterval) throws {
        try inManualTime { loop, clock, trace in
            let timer = Timer.scheduledTimer(withTimeInterval: interval, repeats: true) { _ in trace.add("\(clock.now.nanoseconds)") }
            #expect(timer.timeInterval == 0.0001)
            #expect(loop.run(for: .microseconds(350)) == .timedOut)
            #expect(trace.description == "100000 200000 300000")
            let dated = Timer(fire: Date(), interval: interval, repeats: true) { _ in }
            #expect(dated.timeInterval == 0.0001)
        }
    }

    @Test func `the longest intervals and dates do not overflow`() throws {
        try inManualTime { loop, _, _ in
            for interval in [1e18, Double.infinity, .greatestFiniteMagnitude] {
                let timer = Timer(timeInterval: interval, repeats: true) { _ in }
                #expect(timer.nextFire == .distantFuture)
                #expect(timer.fireDate == .distantFuture)
                timer.tolerance = interval
                #expect((timer.tolerance as Duration) > .seconds(1_000_000_000))
            }
            let timer = Timer(fire: .distantFuture, interval: 1, repeats: true) { _ in }
            #expect(timer.nextFire == .distantFuture)
            timer.fireDate = .distantPast
            #expect(timer.nextFire == .distantPast)
            #expect(timer.fireDate == .distantPast)
            let far = Date(timeIntervalSinceNow: 1e10)  // three hundred years
            timer.fireDate = far
            #expect(timer.nextFire == .distantFuture)
            #expect(timer.fireDate == far)
        }
    }

    @Test func `an interval or a tolerance that is not a number is a precondition failure`() async {
        await #expect(processExitsWith: .failure) { _ = Timer(timeInterval: .nan, repeats: false) { _ in } }
        await #expect(processExitsWith: .failure) { _ = Timer(fire: Date(), interval: .nan, repeats: true) { _ in } }
        await #expect(processExitsWith: .failure) { Timer(timeInterval: 1, repeats: true) { _ in }.tolerance = TimeInterval.nan }
    }

    @Test func `fireDate returns the date that was set, and setting it moves the timer`() throws {
        try onFreshThread { loop in
            let before = Date()
            let timer = Timer.scheduledTimer(withTimeInterval: 3600, repeats: true) { _ in }
            let after = Date()
            // The conversion between the clocks is not exact.
            #expect(timer.fireDate.timeIntervalSince(before) > 3599 && timer.fireDate.timeIntervalSince(after) < 3601)
            let date = Date(timeIntervalSinceNow: 7200)
            timer.fireDate = date
            #expect(timer.fireDate == date)
            #expect(loop.nextTimerFire()! > .now + .seconds(7100))
            timer.invalidate()
            #expect(timer.fireDate == .distantFuture)
            timer.fireDate = date
            #expect(timer.fireDate == .distantFuture)
        }
    }

    /// Dates of the past and the future, near and far, with all bits of a Double.
    private static let randomDates: [Date] = {
        var generator = SplitMix64(seed: 42)
        return (0..<1_000).map { _ in
            let span = pow10(Int.random(in: -6...9, using: &generator))
            return Date(timeIntervalSinceNow: .random(in: -span...span, using: &generator))
        }
    }()

    @Test func `each of a thousand random dates reads back exactly as it was set`() throws {
        let once = Timer(fire: .distantFuture, interval: 0, repeats: false) { _ in }
        let often = Timer(fire: .distantFuture, interval: 60, repeats: true) { _ in }
        let onDemand = Timer.onDemand { _ in }
        let inLoop = Timer(fire: .distantFuture, interval: 60, repeats: true) { _ in }
        try onFreshThread { loop in
            loop.add(inLoop)
            for date in Self.randomDates {
                for timer in [once, often, onDemand, inLoop] {
                    timer.fireDate = date
                    #expect(timer.fireDate == date)
                }
                #expect(Timer(fire: date, interval: 0, repeats: false) { _ in }.fireDate == date)
                #expect(Timer(fire: date, interval: 1, repeats: true) { _ in }.fireDate == date)
            }
        }
    }

    @Test func `a timer that has moved has the date to which it moved`() throws {
        try inManualTime { loop, clock, trace in
            let date = Date(timeIntervalSinceNow: 600)
            let timer = Timer(fire: Date(timeIntervalSinceNow: 60), interval: 3600, repeats: true) { timer in
                trace.add("fired, \(timer.fireDate == date)")
            }
            loop.add(timer)
            timer.fireDate = date
            // The core's setter.
            timer.nextFire = timer.nextFire + .seconds(60)
            #expect(abs(timer.fireDate.timeIntervalSince(date) - 60) < 1)
            // The grid.
            timer.fireDate = date
            _ = loop.run(for: .seconds(601))
            #expect(trace.description == "fired, true")
            #expect(abs(timer.fireDate.timeIntervalSinceNow - 3599) < 1)
            // The end.
            timer.fireDate = date
            timer.invalidate()
            #expect(timer.fireDate == .distantFuture)
        }
    }

    @Test func `an instant of zero has no date that nobody set`() throws {
        try inManualTime { _, _, _ in
            let timer = Timer(fireAt: RunLoop.Instant(nanoseconds: 0), interval: .seconds(1), label: "labelled") { _ in }
            #expect(abs(timer.fireDate.timeIntervalSinceNow) < 5)
            timer.fireDate = Date(timeIntervalSinceReferenceDate: .nan)
            #expect(timer.fireDate == .distantFuture)
        }
    }

    @Test func `dates that several threads set at the same time are never mixed`() throws {
        let timer = Timer(fire: .distantFuture, interval: 60, repeats: true) { _ in }
        let dates = (0..<4).map { Date(timeIntervalSinceNow: 1_000 + Double($0) * 1_000_000) }
        let setters = dates.map { date in
            joinableThread { _ in
                for _ in 0..<2_000 {
                    timer.fireDate = date
                    let found = timer.fireDate
                    let isOneOfThem = dates.contains { abs($0.timeIntervalSince(found)) < 1 }
                    #expect(isOneOfThem)
                }
            }
        }
        for setter in setters { try setter.join() }
        let last = Date(timeIntervalSinceNow: 77)
        timer.fireDate = last
        #expect(timer.fireDate == last)
    }

    @Test func `a timer keeps its tolerance in seconds, which lets one wake-up fire two timers`() throws {
        try inManualTime { loop, clock, trace in
            let lenient = Timer(timeInterval: 1, repeats: true) { _ in trace.add("lenient@\(clock.ms)") }
            lenient.tolerance = 0.3
            #expect(lenient.tolerance as TimeInterval == 0.3)
            lenient.tolerance = -1
            #expect(lenient.tolerance as TimeInterval == 0)
            lenient.tolerance = 10
            #expect(lenient.tolerance as TimeInterval == 0.5)
            loop.add(lenient)
            loop.add(Timer(timeInterval: 1.2, repeats: false) { _ in trace.add("strict@\(clock.ms)") })
            _ = loop.run(for: .milliseconds(1300))
            #expect(trace.description == "lenient@1200 strict@1200")
        }
    }

    @Test func `fire and invalidate resolve to the core`() {
        let trace = Trace()
        let timer = Timer(timeInterval: 1, repeats: false) { timer in trace.add("fired, \(timer.isValid)") }
        timer.fire()
        timer.fire()
        #expect(trace.description == "fired, true")
        #expect(!timer.isValid)
    }

    @Test func `timers and loops are equal by identity, and can be elements of sets`() throws {
        let (one, other) = (Timer(timeInterval: 1, repeats: false) { _ in }, Timer(timeInterval: 1, repeats: false) { _ in })
        #expect(Set([one, other, one]).count == 2)
        #expect([one, other].firstIndex(of: other) == 1)
        let loop = try onFreshThread { $0 }
        #expect(loop == loop && loop != RunLoop.main)
    }

    @Test func `making a timer does not create a loop for the thread`() throws {
        let hasLoop = try plainThread {
            let timer = Timer(fire: Date(timeIntervalSinceNow: 1), interval: 0, repeats: false) { _ in }
            timer.fireDate = Date(timeIntervalSinceNow: 2)
            return timer.fireDate > Date() && RunLoop.main.isCurrent
        }.join()
        #expect(!hasLoop)
    }
}

private func pow10(_ exponent: Int) -> Double { (0..<abs(exponent)).reduce(1) { product, _ in exponent < 0 ? product / 10 : product * 10 } }
