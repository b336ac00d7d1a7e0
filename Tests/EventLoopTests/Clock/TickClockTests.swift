// Rules proved here (TickClock.swift), for a machine that was suspended, whose processor's clock goes on meanwhile or begins again:
// - Readings before and after a suspension say nothing about the unit of the processor's clock.
// - A recording over a suspension has dates without overflow.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite struct TickClockTests {
    private typealias Reading = TickClock.Reading
    private static let hour: Int64 = 3_600_000_000_000

    @Test func `two readings give the unit, and the time between readings of a clock is no suspension`() {
        let (before, after) = (
            Reading(ticks: 3_000, nanoseconds: 1_000, suspended: 500), Reading(ticks: 6_000, nanoseconds: 2_000, suspended: 700)
        )
        #expect(after.nanosecondsPerTick(since: before) == 1_000.0 / 3_000)
        #expect(before.nanosecondsPerTick(since: after) == nil)
    }

    @Test(arguments: [3 * UInt64(3_600_000_000_000), 3_001, 10])
    func `a suspension between two readings leaves the unit unknown`(ticks: UInt64) {
        let before = Reading(ticks: 3_000, nanoseconds: 1_000, suspended: 0)
        #expect(Reading(ticks: ticks, nanoseconds: 2_000, suspended: Self.hour).nanosecondsPerTick(since: before) == nil)
    }

    @Test func `the unit of this machine is known`() {
        let unit = TickClock.nanosecondsPerTick
        #expect(unit > 0 && unit < 1_000)
    }

    @Test func `dates of a recording saturate when the clocks disagree`() {
        // A tick is half an hour.
        let clock = RecordingClock(
            Reading(ticks: 1 << 62, nanoseconds: 0, suspended: 0), Reading(ticks: 1 << 62 + 2, nanoseconds: Self.hour, suspended: 0))
        #expect(clock.instant(1 << 62 + 2).nanoseconds == Self.hour)
        #expect(clock.instant(0) == .distantPast)
        #expect(clock.instant(1 << 63 - 1) == .distantFuture)
    }
}
