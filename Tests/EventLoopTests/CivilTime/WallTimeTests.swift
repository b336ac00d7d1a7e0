// Points in civil time (API: RunLoop.WallTime): arithmetic saturates as that of instants does, and the description is ISO 8601.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

@Suite struct WallTimeTests {
    private typealias WallTime = RunLoop.WallTime

    @Test(arguments: [
        (0, "1970-01-01T00:00:00Z"), (978_307_200_000_000_000, "2001-01-01T00:00:00Z"),
        (1_795_575_600_000_000_000, "2026-11-25T03:00:00Z"), (1_795_575_600_000_000_001, "2026-11-25T03:00:00.000000001Z"),
        (1_795_575_600_500_000_000, "2026-11-25T03:00:00.5Z"), (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"), (-2_203_891_200_000_000_000, "1900-03-01T00:00:00Z"),
        (Int64.max, "2262-04-11T23:47:16.854775807Z"), (Int64.min, "1677-09-21T00:12:43.145224192Z"),
    ])
    func `the description is ISO 8601 with as many digits as it takes`(nanoseconds: Int64, text: String) {
        #expect(WallTime(nanosecondsSince1970: nanoseconds).description == text)
    }

    @Test func `every day of eight hundred years is the calendar's`() throws {
        // gmtime_r is the C library's calendar.
        for day in Int64(-100_000)...100_000 {
            var seconds = time_t(day * 86_400)
            var parts = tm()
            gmtime_r(&seconds, &parts)
            let text = WallTime(nanosecondsSince1970: Int64(seconds) * 1_000_000_000).description
            let numbers = text.prefix(10).split(separator: "-").map { Int32($0) }
            try #require(numbers == [parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday], "day \(day)")
        }
    }

    @Test func `arithmetic is exact in range and saturates beyond it`() {
        let time = WallTime(nanosecondsSince1970: 1_000)
        #expect(time + .nanoseconds(5) == WallTime(nanosecondsSince1970: 1_005))
        #expect(time - .nanoseconds(5) == WallTime(nanosecondsSince1970: 995))
        #expect(WallTime(nanosecondsSince1970: 995) - time == .nanoseconds(-5))
        #expect(WallTime(nanosecondsSince1970: 995) < time && time < .distantFuture)
        let longest = Duration(secondsComponent: .max, attosecondsComponent: 0)
        #expect(time + longest == .distantFuture)
        #expect((time - longest).nanosecondsSince1970 == .min)
        #expect(.distantFuture + .seconds(-1) == WallTime.distantFuture)
        #expect(.distantFuture - .seconds(1) == WallTime.distantFuture)
        #expect(.distantFuture - WallTime(nanosecondsSince1970: .min) == .nanoseconds(Int64.max))
        #expect(time + Duration(secondsComponent: 0, attosecondsComponent: 1) == WallTime(nanosecondsSince1970: 1_001))
    }

    @Test func `now is what the system's clock says`() {
        var seconds = time_t()
        time(&seconds)
        #expect((WallTime.now.nanosecondsSince1970 / 1_000_000_000 - Int64(seconds)).magnitude < 600)
    }
}
