// Instants (API: RunLoop.Instant; semantics 1.11; decision 9): nanoseconds of a monotonic clock. Arithmetic saturates at distantPast and
// distantFuture. Rounding is upwards, so that nothing is early. Nothing is early on the real clock either.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct InstantTests {
    private typealias Instant = RunLoop.Instant

    @Test func `arithmetic is exact between distantPast and distantFuture`() {
        let instant = Instant(nanoseconds: 1_000)
        #expect(instant + .nanoseconds(5) == Instant(nanoseconds: 1_005))
        #expect(instant - .nanoseconds(5) == Instant(nanoseconds: 995))
        #expect(instant.advanced(by: .seconds(-1)) == Instant(nanoseconds: -999_999_000))
        #expect(Instant(nanoseconds: 1_005) - instant == .nanoseconds(5))
        #expect(instant.duration(to: Instant(nanoseconds: 995)) == .nanoseconds(-5))
        #expect(instant + .seconds(9_000_000_000) == Instant(nanoseconds: 9_000_000_000_000_001_000))
        #expect(Instant(nanoseconds: -1) < instant && instant < .distantFuture && .distantPast < instant)
    }

    @Test(arguments: [Duration.seconds(1), .nanoseconds(6), .seconds(Int64.max), .seconds(9_300_000_000)])
    func `sums beyond distantPast or distantFuture saturate`(duration: Duration) {
        let (late, early) = (Instant(nanoseconds: .max - 5), Instant(nanoseconds: .min + 5))
        #expect(late + duration == .distantFuture)
        #expect(late.advanced(by: duration) == .distantFuture)
        #expect(late - (.zero - duration) == .distantFuture)
        #expect(early - duration == .distantPast)
        #expect(early + (.zero - duration) == .distantPast)
        #expect(early.advanced(by: .zero - duration) == .distantPast)
        #expect(Instant.distantFuture + duration == .distantFuture)
        #expect(Instant.distantPast - duration == .distantPast)
    }

    @Test func `the longest durations do not overflow`() {
        let longest = Duration(secondsComponent: .max, attosecondsComponent: 999_999_999_999_999_999)
        let shortest = Duration(secondsComponent: .min, attosecondsComponent: -999_999_999_999_999_999)
        #expect(Instant(nanoseconds: 0) + longest == .distantFuture)
        #expect(Instant(nanoseconds: 0) - longest == .distantPast)
        #expect(Instant(nanoseconds: 0) + shortest == .distantPast)
        #expect(Instant(nanoseconds: 0) - shortest == .distantFuture)
    }

    @Test func `the distances between distantPast, distantFuture and now do not overflow`() {
        let (past, future) = (Instant.distantPast, Instant.distantFuture)
        #expect(future - past >= .nanoseconds(Int64.max))
        #expect(past - future <= .nanoseconds(-Int64.max))
        #expect(future.duration(to: past) == past - future)
        #expect(past.duration(to: .now) > .seconds(1) && Instant.now.duration(to: future) > .seconds(1))
    }

    @Test func `a fraction of a nanosecond is rounded up, so that nothing is early`() {
        let fraction = Duration(secondsComponent: 0, attosecondsComponent: 1)
        #expect(Instant(nanoseconds: 0) + fraction == Instant(nanoseconds: 1))
    }

    @Test func `now never goes backwards`() {
        var last = Instant.now
        for _ in 0..<10_000 {
            let next = Instant.now
            #expect(next >= last)
            last = next
        }
    }

    // MARK: Extreme limits

    @Test func `a run accepts distantPast, distantFuture and the longest durations as limits`() throws {
        let results = try inManualTime { loop, clock, trace in
            loop.add(RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in loop.stop() })
            trace.add("\(loop.run(until: .distantPast))@\(clock.ms)")
            trace.add("\(loop.run(for: .seconds(Int64.min / 2)))@\(clock.ms)")
            trace.add("\(loop.run(until: .distantFuture))@\(clock.ms)")
            trace.add("\(loop.run(for: .seconds(Int64.max)))@\(clock.ms)")
            return trace.description
        }
        #expect(results == "timedOut@0 timedOut@0 stopped@10 stopped@20")
    }

    // MARK: The real clock

    @Test func `timers on the real clock are never early, however near or far their dates are`() throws {
        let early = try onFreshThread { loop in
            let early = Box<[String]>([])
            for microseconds in [0, 1, 10, 100, 500, 999, 1_000, 1_001, 2_500, 5_000, 9_999, 20_000] {
                let date = RunLoop.Instant.now + .microseconds(microseconds)
                loop.add(
                    RunLoop.Timer(fireAt: date) { _ in
                        let now = RunLoop.Instant.now
                        if now < date { early.change { $0.append("\(microseconds) µs: early by \(date - now)") } }
                    })
            }
            let result = loop.run(for: patience)
            return early.value + (result == .finished ? [] : ["\(result)"])
        }
        #expect(early == [])
    }

    @Test func `a repeating timer on the real clock is never early, fires for each date, and stays on its grid`() throws {
        let (early, offGrid, count) = try onFreshThread { loop in
            let early = Box(0)
            let offGrid = Box(0)
            let count = Box(0)
            let start = RunLoop.Instant.now + .milliseconds(2)
            loop.add(
                RunLoop.Timer(fireAt: start, interval: .milliseconds(2)) { timer in
                    let slot = timer.nextFire
                    if RunLoop.Instant.now < slot { early.increment() }
                    if (slot.nanoseconds - start.nanoseconds) % 2_000_000 != 0 { offGrid.increment() }
                    if count.increment() == 10 { loop.stop() }
                })
            _ = loop.run(for: patience)
            return (early.value, offGrid.value, count.value)
        }
        #expect([early, offGrid, count] == [0, 0, 10])
    }

    @Test func `limits on the real clock are never early`() throws {
        let outcome = try onFreshThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            return [1, 50, 500, 1_500, 5_000, 12_345].filter { microseconds in
                let deadline = RunLoop.Instant.now + .microseconds(microseconds)
                let result = loop.run(until: deadline)
                return result != .timedOut || RunLoop.Instant.now < deadline
            }
        }
        #expect(outcome == [])
    }
}
