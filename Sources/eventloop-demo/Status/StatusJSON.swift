// The status as JSON, for the script of the status page.

import EventLoop

enum StatusJSON {
    /// At most this many lines about the items of a loop.
    private static let itemLines = 40

    static func text(of status: ServerStatus, _ trouble: TroubleLog) -> String {
        JSON.object([
            ("name", .text(status.name)),
            ("url", .text(status.url)),
            ("pid", .count(Int(status.processID))),
            ("state", .text(status.state.rawValue)),
            ("uptime", .number(status.uptime / .seconds(1))),
            ("loops", .list(status.loops.map(loop))),
            ("warnings", .list(trouble.warnings.map { .text($0.description) })),
            ("stallCount", .count(trouble.stalls.count)),
            ("stalls", .list(trouble.stalls.newest.map(stall))),
        ]).description + "\n"
    }

    private static func loop(_ status: LoopStatus) -> JSON {
        let (loop, counters, statistics) = (status.loop, status.counters, status.loop.statistics)
        return .object([
            ("name", .text(status.name)),
            ("servesHTTP", .count(status.servesHTTP ? 1 : 0)),
            ("state", .text(!loop.isValid ? "ended" : loop.isWaiting ? "asleep" : loop.currentMode == nil ? "not running" : "awake")),
            ("mode", .text(loop.currentMode?.rawValue ?? "")),
            ("modes", .list(loop.modes.map(\.rawValue).sorted().map(JSON.text))),
            ("depth", .count(loop.runDepth)),
            ("requests", .count(counters.requests.value)),
            ("inProgress", .count(counters.inProgress.value)),
            ("connections", .count(counters.connections.value)),
            ("accepted", .count(counters.accepted.value)),
            ("pauses", .count(counters.pauses.value)),
            ("requestsPerSecond", .number(status.requestsPerSecond)),
            ("passesPerSecond", .number(status.passesPerSecond)),
            ("eventsPerSecond", .number(status.eventsPerSecond)),
            ("busy", .number(status.busy)),
            ("passes", .count(Int(statistics.passes))),
            ("waits", .count(Int(statistics.waits))),
            ("wakeUps", .count(Int(statistics.wakeUps))),
            ("sources", .count(Int(statistics.sourcesHandled))),
            ("timers", .count(Int(statistics.timersFired))),
            ("blocks", .count(Int(statistics.blocksPerformed))),
            ("jobs", .count(Int(statistics.jobsPerformed))),
            ("longest", .number(statistics.longestPass / .milliseconds(1))),
            ("delays", histogram(statistics.responseDelays)),
            ("lateness", histogram(statistics.timerLateness)),
            ("slowest", .list(statistics.slowestCallouts.map(slow))),
            ("requestHistory", .list(status.requestHistory.map(JSON.number))),
            ("busyHistory", .list(status.busyHistory.map(JSON.number))),
            ("items", .list(items(of: loop))),
        ])
    }

    /// Milliseconds.
    private static func histogram(_ histogram: RunLoop.Histogram) -> JSON {
        .object([
            ("count", .count(Int(histogram.count))),
            ("median", .number(histogram.percentile(50) / .milliseconds(1))),
            ("p99", .number(histogram.percentile(99) / .milliseconds(1))),
            ("maximum", .number(histogram.maximum / .milliseconds(1))),
        ])
    }

    private static func slow(_ callout: RunLoop.SlowCallout) -> JSON {
        .object([
            ("kind", .text(callout.kind.rawValue)),
            ("label", .text(callout.label ?? "")),
            ("createdAt", .text(callout.createdAt ?? "")),
            ("milliseconds", .number(callout.duration / .milliseconds(1))),
            ("count", .count(Int(clamping: callout.count))),
        ])
    }

    private static func stall(_ entry: TroubleLog.Stall) -> JSON {
        .object([
            ("number", .count(entry.number)),
            ("loop", .text(entry.loop)),
            ("secondsAgo", .number(entry.at.duration(to: .now) / .seconds(1))),
            ("kind", .text(entry.stall.kind.rawValue)),
            ("label", .text(entry.stall.label ?? "")),
            ("createdAt", .text(entry.stall.createdAt ?? "")),
            ("milliseconds", .number(entry.stall.duration / .milliseconds(1))),
            ("processor", .number(entry.stall.processorTime / .milliseconds(1))),
            ("backtrace", .list(entry.stall.backtrace.prefix(24).map(JSON.text))),
        ])
    }

    /// The lines of the loop's description. They contain labels, which may be any text.
    private static func items(of loop: RunLoop) -> [JSON] {
        let lines = loop.debugDescription.split(separator: "\n").dropFirst()
        let shown = lines.prefix(itemLines).map { JSON.text(String($0.prefix(200))) }
        return lines.count <= itemLines ? shown : shown + [.text("    … and \(lines.count - itemLines) lines more")]
    }
}
