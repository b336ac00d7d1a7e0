// The status as a table for a terminal of 80 columns: what `ctl status` prints.

import EventLoop

enum StatusTable {
    private static let columns: [(title: String, width: Int)] = [
        ("requests", 9), ("per s", 8), ("waiting", 8), ("open", 6), ("passes/s", 10), ("events/s", 10), ("busy", 6), ("longest", 9),
    ]

    static func text(of status: ServerStatus) -> String {
        let state = status.state == .draining ? "draining: \(waiting(status))" : "serving"
        let seconds = UInt64(max(0, status.uptime / .seconds(1)))
        let head = [
            "\(status.name)  \(status.url)  process \(status.processID)",
            "\(state), up for \(duration(seconds))",
            "",
            Format.left("loop", 9) + columns.map { Format.right($0.title, $0.width) }.joined(),
        ]
        let foot = ["", "The page \(status.url)status shows this live, with a history."]
        return (head + status.loops.map(row) + foot).joined(separator: "\n")
    }

    static func waiting(_ status: ServerStatus) -> String {
        "\(Format.count(max(0, status.requestsInProgress), "request")) in progress"
    }

    private static func row(_ loop: LoopStatus) -> String {
        func number(_ value: Int) -> String { Format.compact(UInt64(max(0, value))) }
        func whole(_ value: Double) -> String { Format.compact(UInt64(value.rounded())) }
        let http =
            loop.servesHTTP
            ? [
                number(loop.counters.requests.value), whole(loop.requestsPerSecond), number(loop.counters.inProgress.value),
                number(loop.counters.connections.value),
            ] : ["-", "-", "-", "-"]
        let rest = [
            whole(loop.passesPerSecond), whole(loop.eventsPerSecond), "\(Int((loop.busy * 100).rounded())) %",
            Format.duration(loop.loop.statistics.longestPass),
        ]
        return Format.left(loop.name, 9) + zip(http + rest, columns).map { Format.right($0, $1.width) }.joined()
    }

    private static func duration(_ seconds: UInt64) -> String {
        seconds < 60
            ? "\(seconds) s" : seconds < 3600 ? "\(seconds / 60) min \(seconds % 60) s" : "\(seconds / 3600) h \(seconds / 60 % 60) min"
    }
}
