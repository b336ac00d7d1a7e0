// The tables of the demo. Every line is at most 80 columns wide.

import EventLoop

enum Report {
    // MARK: One line each second

    static let secondHead = "  second   requests   per second       min    median       p99   batches"

    /// - Parameter seconds: the duration over which `latency` was measured.
    static func second(_ title: String, total: UInt64, latency: Latency, seconds: Int = 1, batches: Int) -> String {
        [
            (title, 8), (Format.grouped(total), 11), (Format.grouped(latency.count / UInt64(seconds)), 13),
            (Format.duration(nanoseconds: latency.min), 10), (Format.duration(nanoseconds: latency.median), 10),
            (Format.duration(nanoseconds: latency.p99), 10), (Format.grouped(UInt64(batches)), 10),
        ].map { Format.right($0.0, $0.1) }.joined()
    }

    // MARK: Each loop's statistics

    private static let columns: [(title: String, width: Int)] = [
        ("passes", 8), ("waits", 8), ("wake-ups", 9), ("sources", 8), ("timers", 7), ("blocks", 7),
        ("waiting", 8), ("working", 8), ("longest", 8),
    ]

    typealias NamedLoop = (name: String, loop: RunLoop)

    static func named(main: RunLoop, servers: [RunLoop]) -> [NamedLoop] {
        [("main", main)] + servers.enumerated().map { ("http-\($0.offset)", $0.element) }
    }

    static func statistics(of loops: [NamedLoop], palette: Palette) -> [String] {
        let head = "  " + Format.left("loop", 6) + columns.map { Format.right($0.title, $0.width) }.joined()
        return [palette.dim(head)] + loops.map { "  " + Format.left($0.name, 6) + row($0.loop.statistics) }
    }

    private static func row(_ statistics: RunLoop.Statistics) -> String {
        let counts = [
            statistics.passes, statistics.waits, statistics.wakeUps,
            statistics.sourcesHandled, statistics.timersFired, statistics.blocksPerformed,
        ].map(Format.compact)
        let times = [statistics.timeWaiting, statistics.timeWorking, statistics.longestPass].map(Format.duration)
        return zip(counts + times, columns).map { Format.right($0, $1.width) }.joined()
    }
}
