// Runs a job every day at a time of day in a time zone, as cron does.
//
//   cron 03:00 Europe/Berlin

import EventLoop

import struct Foundation.Calendar
import struct Foundation.Date
import struct Foundation.DateComponents
import struct Foundation.TimeZone

/// The next date after `time` at which the clocks of the zone show `hour` and `minute`.
///
/// Where the clocks skip that time (daylight saving begins), the first moment after the gap; where they show it twice, the first time.
func next(after time: RunLoop.WallTime, hour: Int, minute: Int, in zone: TimeZone) -> RunLoop.WallTime {
    var calendar = Calendar(identifier: .gregorian)
    calendar.timeZone = zone
    let date = calendar.nextDate(
        after: Date(timeIntervalSince1970: Double(time.nanosecondsSince1970) / 1e9),
        matching: DateComponents(hour: hour, minute: minute, second: 0), matchingPolicy: .nextTime, repeatedTimePolicy: .first)
    guard let date else { return .distantFuture }
    return RunLoop.WallTime(nanosecondsSince1970: Int64(date.timeIntervalSince1970) * 1_000_000_000)
}

/// Calls `job` every day at that time, on the loop. Invalidate the timer to end it.
func daily(
    _ hour: Int, _ minute: Int, in zone: TimeZone, on loop: RunLoop, _ job: @escaping @Sendable (RunLoop.WallTime) -> Void
) throws -> RunLoop.WallTimer {
    let first = next(after: loop.wallTime, hour: hour, minute: minute, in: zone)
    let timer = try RunLoop.WallTimer(fireAt: first, label: "daily job") { [weak loop] timer in
        guard let loop else { return }
        // Before the job: it may take longer than a day.
        timer.nextFire = next(after: loop.wallTime, hour: hour, minute: minute, in: zone)
        job(loop.wallTime)
    }
    loop.add(timer, forMode: .common)
    return timer
}

@main enum Cron {
    static func main() throws {
        let words = CommandLine.arguments.dropFirst()
        let time = (words.first ?? "").split(separator: ":").compactMap { Int($0) }
        guard time.count == 2, (0..<24).contains(time[0]), (0..<60).contains(time[1]),
            let zone = TimeZone(identifier: words.dropFirst().first ?? "UTC")
        else { return print("usage: cron HH:MM [ZONE]") }
        let timer = try daily(time[0], time[1], in: zone, on: .main) { print("the job runs, at \($0)") }
        print("the job runs next at \(timer.nextFire)")
        // Whoever changes the clock should know what it does to the jobs.
        let change = try RunLoop.ClockChangeSource { _, jump in
            print("the clock was set by \(jump); the job runs next at \(timer.nextFire)")
        }
        RunLoop.main.add(change, forMode: .common)
        RunLoop.main.run()
    }
}
