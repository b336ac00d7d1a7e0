// What the status page and `ctl status` show: a value, made once a second on the main loop.

import EventLoop

struct ServerStatus: Sendable {
    enum State: String { case serving, draining }

    var name: String
    var url: String
    var processID: Int32
    var startedAt: RunLoop.Instant
    var state = State.serving
    /// The main loop first, then the server loops by number.
    var loops: [LoopStatus] = []

    var uptime: Duration { startedAt.duration(to: .now) }
    var requestsInProgress: Int { loops.reduce(0) { $0 + $1.counters.inProgress.value } }
}

/// One loop. The rates and histories are those of the last whole second, everything else is of the moment when it is read.
struct LoopStatus: Sendable {
    /// How many seconds of history there are at most.
    static let historyLength = 60

    let name: String
    let loop: RunLoop
    let counters: HostCounters
    let servesHTTP: Bool

    /// Per second, in the last second.
    var requestsPerSecond = 0.0
    var passesPerSecond = 0.0
    var eventsPerSecond = 0.0
    /// The part of the last second in which the thread used a processor, 0 to 1.
    var busy = 0.0
    /// One number for each second, the latest last.
    var requestHistory: [Double] = []
    var busyHistory: [Double] = []

    /// What the loop itself has delivered: sources, timers, blocks, and jobs of actors. A C library's events are delivered inside the wait,
    /// and not counted here.
    static func delivered(_ statistics: RunLoop.Statistics) -> Int {
        Int(statistics.sourcesHandled + statistics.timersFired + statistics.blocksPerformed + statistics.jobsPerformed)
    }
}

/// The latest status, for the server loops that show it. Thread-safe.
final class StatusBoard: Sendable {
    private let latest: Locked<ServerStatus?> = Locked(nil)

    var status: ServerStatus? { latest.withLock { $0 } }
    func show(_ status: ServerStatus) { latest.withLock { $0 = status } }
}
