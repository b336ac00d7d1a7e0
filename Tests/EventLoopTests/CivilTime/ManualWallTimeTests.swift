// Civil time of a manual clock (API: ManualClock.wallTime, WallTimer, ClockChangeSource):
//  - The wall time starts at 2001-01-01, moves with the clock, and can be set.
//  - A wall timer fires at its date, never before it, and once for each date that was set.
//  - A clock change source is called with the sum of the jumps.
//  - Neither is in loops of different clocks at a time.

#if os(Linux)

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct ManualWallTimeTests {
    private static let start = RunLoop.WallTime(nanosecondsSince1970: 978_307_200_000_000_000)

    @Test func `the wall time starts in 2001, moves with the clock, and moves no other clock when it is set`() throws {
        let clock = RunLoop.ManualClock(start: .ms(5))
        #expect(clock.wallTime.description == "2001-01-01T00:00:00Z")
        clock.advance(by: .milliseconds(1500))
        #expect(clock.wallTime.description == "2001-01-01T00:00:01.5Z")
        clock.wallTime = RunLoop.WallTime(nanosecondsSince1970: 0)
        #expect(clock.now == .ms(1505))
        clock.advance(by: .seconds(1))
        #expect(clock.wallTime.description == "1970-01-01T00:00:01Z")
        try onFreshThread { loop in
            #expect((loop.wallTime - .now) < .seconds(600))
            loop.use(clock)
            #expect(loop.wallTime == clock.wallTime)
        }
    }

    @Test func `a timer fires when the clock is advanced to its date, and not before`() throws {
        try inTime { loop, clock, trace in
            let timer = try RunLoop.WallTimer(fireAt: Self.start + .seconds(10)) { timer in
                trace.add("fired \(loop.wallTime) next \(timer.nextFire == .distantFuture)")
            }
            loop.add(timer)
            clock.advance(by: .seconds(9))
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(timer.nextFire == Self.start + .seconds(10))
            clock.advance(by: .seconds(1))
            #expect(loop.run(until: .distantPast, returnAfterSourceHandled: true) == .handledSource)
            clock.advance(by: .seconds(100))
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "fired 2001-01-01T00:00:10Z next true")
        }
    }

    @Test func `a handler sets the next date`() throws {
        try inTime(autoAdvance: true) { loop, _, trace in
            let timer = try RunLoop.WallTimer(fireAt: Self.start + .seconds(3600)) { timer in
                trace.add("\(loop.wallTime)")
                timer.nextFire = loop.wallTime + .seconds(86_400)
            }
            loop.add(timer)
            // The loop advances its clock by itself, to the dates and no further.
            _ = loop.run(for: .seconds(200_000))
            #expect(trace.take() == "2001-01-01T01:00:00Z 2001-01-02T01:00:00Z 2001-01-03T01:00:00Z")
            timer.nextFire = .distantFuture
            #expect(loop.run(for: .seconds(200_000)) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    @Test func `a date at the limit of a run is served by that run`() throws {
        try inTime(autoAdvance: true) { loop, _, trace in
            loop.add(try RunLoop.WallTimer(fireAt: Self.start + .seconds(10)) { _ in trace.add("fired") })
            #expect(loop.run(for: .seconds(10)) == .timedOut)
            #expect(trace.take() == "fired")
        }
    }

    @Test func `setting the clock forwards past the date fires at once, and once`() throws {
        try inTime { loop, clock, trace in
            let timer = try RunLoop.WallTimer(fireAt: Self.start + .seconds(10)) { _ in trace.add("fired") }
            loop.add(timer)
            clock.wallTime = Self.start + .seconds(20)
            #expect(loop.run(until: .distantPast, returnAfterSourceHandled: true) == .handledSource)
            clock.wallTime = Self.start
            clock.advance(by: .seconds(50))
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "fired")
        }
    }

    @Test func `a clock that is set back before the loop looks does not fire the timer`() throws {
        try inTime(autoAdvance: true) { loop, clock, trace in
            let timer = try RunLoop.WallTimer(fireAt: Self.start + .seconds(10)) { _ in trace.add("fired \(loop.wallTime)") }
            loop.add(timer)
            clock.wallTime = Self.start + .seconds(20)
            clock.wallTime = Self.start + .seconds(1)
            #expect(loop.run(for: .seconds(8)) == .timedOut)
            #expect(trace.take() == "")
            _ = loop.run(for: .seconds(2))
            #expect(trace.take() == "fired 2001-01-01T00:00:10Z")
        }
    }

    @Test func `a date in the past fires at once, and one in the distant future never`() throws {
        try inTime { loop, clock, trace in
            loop.add(try RunLoop.WallTimer(fireAt: RunLoop.WallTime(nanosecondsSince1970: .min)) { _ in trace.add("past") })
            loop.add(try RunLoop.WallTimer(fireAt: .distantFuture) { _ in trace.add("never") })
            clock.wallTime = .distantFuture
            while loop.run(until: .distantPast, returnAfterSourceHandled: true) == .handledSource {}
            #expect(trace.take() == "past")
        }
    }

    @Test func `a timer fires only when one of its modes runs`() throws {
        try inTime(autoAdvance: true) { loop, clock, trace in
            let timer = try RunLoop.WallTimer(fireAt: Self.start + .seconds(1)) { _ in trace.add("fired \(loop.wallTime)") }
            loop.add(timer, forMode: .modalPanel)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            #expect(trace.take() == "")
            _ = loop.run(mode: .modalPanel, until: .distantPast, returnAfterSourceHandled: true)
            #expect(trace.take() == "fired 2001-01-01T00:00:05Z")
        }
    }

    @Test func `the source is called with the sum of the jumps, and not when nothing changes`() throws {
        try inTime { loop, clock, trace in
            let source = try RunLoop.ClockChangeSource { _, jump in trace.add("\(jump)") }
            loop.add(source)
            clock.advance(by: .seconds(100))
            clock.wallTime = clock.wallTime
            #expect(loop.run(for: .zero) == .timedOut)
            clock.wallTime = clock.wallTime + .seconds(3600)
            clock.wallTime = clock.wallTime - .seconds(60)
            #expect(loop.run(until: .distantPast, returnAfterSourceHandled: true) == .handledSource)
            #expect(loop.run(for: .zero) == .timedOut)
            clock.wallTime = clock.wallTime + .seconds(60)
            clock.wallTime = clock.wallTime - .seconds(60)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "3540.0 seconds")
            source.invalidate()
            clock.wallTime = clock.wallTime + .seconds(60)
            #expect(loop.run(for: .zero) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `a recording has a kind for each`() throws {
        try inTime { loop, clock, _ in
            loop.startRecording(capacity: 100)
            let timer = try RunLoop.WallTimer(fireAt: Self.start + .seconds(1), label: "alarm") { _ in }
            let source = try RunLoop.ClockChangeSource(label: "change") { _, _ in }
            loop.add(timer)
            loop.add(source)
            clock.wallTime = Self.start + .seconds(1)
            while loop.run(until: .distantPast, returnAfterSourceHandled: true) == .handledSource {}
            let kinds = try #require(loop.stopRecording()).events.filter { $0.label != nil }.map { "\($0.kind) \($0.label!)" }
            #expect(Set(kinds) == ["wallTimer alarm", "clockChange change"])
        }
    }

    @Test func `an invalid timer has no date, and releases its handler`() throws {
        try inTime { loop, _, trace in
            weak var probe: Trace?
            let timer: RunLoop.WallTimer
            do {
                let captured = Trace()
                probe = captured
                timer = try RunLoop.WallTimer(fireAt: Self.start + .seconds(1)) { _ in captured.add("") }
            }
            timer.onInvalidation { trace.add("invalid") }
            loop.add(timer)
            timer.invalidate()
            timer.nextFire = Self.start
            #expect(timer.nextFire == .distantFuture && probe == nil)
            #expect(loop.run(for: .zero) == .finished)
            #expect(trace.take() == "invalid")
        }
    }

    @Test func `a timer and a clock change source refuse a loop with another clock, until they have left`() throws {
        try inTime { loop, clock, _ in
            let sources: [RunLoop.Source] = [
                try RunLoop.WallTimer(fireAt: Self.start + .seconds(10)) { _ in }, try RunLoop.ClockChangeSource { _, _ in },
            ]
            for source in sources {
                loop.add(source)
                let isInRealTime = try onFreshThread { $0.add(source) }
                let isInOtherTime = try onFreshThread { other in
                    other.use(RunLoop.ManualClock())
                    return other.add(source)
                }
                let isInSameTime = try onFreshThread { other in
                    other.use(clock)
                    return other.add(source)
                }
                #expect(!isInRealTime && !isInOtherTime && isInSameTime)
                loop.remove(source)
                let isMoved = try onFreshThread { $0.add(source) }
                #expect(isMoved)
                source.invalidate()
            }
        }
    }

    @Test func `threads that set dates and the clock leave the last date armed`() throws {
        for _ in 0..<20 {
            try inTime { loop, clock, trace in
                let timer = try RunLoop.WallTimer(fireAt: .distantFuture) { _ in trace.add("fired") }
                loop.add(timer)
                let threads = (0..<3).map { number in
                    plainThread {
                        for _ in 0..<50 {
                            timer.nextFire = Self.start + .seconds(1_000_000 + number)
                            clock.wallTime = Self.start + .seconds(number)
                        }
                    }
                }
                for thread in threads { try thread.join() }
                timer.nextFire = Self.start + .seconds(500)
                clock.wallTime = Self.start
                #expect(loop.run(for: .zero) == .timedOut)
                clock.advance(by: .seconds(500))
                #expect(loop.run(until: .distantPast, returnAfterSourceHandled: true) == .handledSource)
                #expect(trace.take() == "fired")
            }
        }
    }

    @Test func `a date that another thread sets while the timer fires is a deadline of its loop`() throws {
        try inTime(autoAdvance: true) { loop, clock, trace in
            let rounds = 300
            let (fires, dates, isOver) = (Counter(), Counter(), Box(false))
            let timer = try RunLoop.WallTimer(fireAt: Self.start + .seconds(1)) { _ in
                let number = fires.increment()
                if clock.wallTime != Self.start + .seconds(number) { trace.add("\(number) at \(clock.wallTime)") }
                if number > rounds { return loop.stop() }
                do { try waitUntil("the next date") { dates.value >= number } } catch { trace.add("\(error)") }
            }
            loop.add(timer)
            let setter = plainThread {
                for number in 1...rounds {
                    try waitUntil("the timer fires") { timer.nextFire == .distantFuture || isOver.value }
                    if isOver.value { return }
                    timer.nextFire = Self.start + .seconds(number + 1)
                    dates.increment()
                }
            }
            #expect(loop.run(for: .seconds(10 * rounds)) == .stopped)
            isOver.value = true
            try setter.join()
            #expect(trace.take() == "")
        }
    }

    private func inTime(autoAdvance: Bool = false, _ body: @escaping @Sendable (RunLoop, RunLoop.ManualClock, Trace) throws -> Void) throws
    {
        try onFreshThread { loop in
            let clock = RunLoop.ManualClock(autoAdvance: autoAdvance)
            loop.use(clock)
            try body(loop, clock, Trace())
        }
    }
}

#endif
