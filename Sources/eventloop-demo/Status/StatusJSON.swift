// The status as JSON, for the script of the status page.

import EventLoop

enum StatusJSON {
    /// At most this many lines about the items of a loop.
    private static let itemLines = 40

    static func text(of status: ServerStatus) -> String {
        JSON.object([
            ("name", .text(status.name)),
            ("url", .text(status.url)),
            ("pid", .count(Int(status.processID))),
            ("state", .text(status.state.rawValue)),
            ("uptime", .number(status.uptime / .seconds(1))),
            ("loops", .list(status.loops.map(loop))),
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
            ("requestHistory", .list(status.requestHistory.map(JSON.number))),
            ("busyHistory", .list(status.busyHistory.map(JSON.number))),
            ("items", .list(items(of: loop))),
        ])
    }

    /// The lines of the loop's description. They contain labels, which may be any text.
    private static func items(of loop: RunLoop) -> [JSON] {
        let lines = loop.debugDescription.split(separator: "\n").dropFirst()
        let shown = lines.prefix(itemLines).map { JSON.text(String($0.prefix(200))) }
        return lines.count <= itemLines ? shown : shown + [.text("    … and \(lines.count - itemLines) lines more")]
    }
}
