// Reads every loop's counters once a second, and computes what happened in between. Belongs to the main thread.

import EventLoop

final class Sampler {
    private(set) var status: ServerStatus
    private let board: StatusBoard
    private let loops: [(name: String, loop: RunLoop, counters: HostCounters)]
    private var before: [Reading]
    private var timer: RunLoop.Timer?

    /// A loop's counters at one moment.
    private struct Reading {
        var at: RunLoop.Instant
        var requests: Int
        var statistics: RunLoop.Statistics
        var processor: Duration?
    }

    /// - Parameter loops: the main loop first. Its counters count no requests.
    init(status: ServerStatus, loops: [(name: String, loop: RunLoop, counters: HostCounters)], board: StatusBoard) {
        self.status = status
        self.loops = loops
        self.board = board
        before = loops.map { Sampler.read($0.loop, $0.counters) }
        self.status.loops = loops.indices.map { describe($0, before[$0], earlier: nil) }
        board.show(self.status)
    }

    func start() {
        let here = LoopBound(self)
        let timer = RunLoop.Timer(every: .seconds(1), label: "sample") { _ in here.value.sample() }
        RunLoop.current.add(timer)
        self.timer = timer
    }

    func stop() { timer?.invalidate() }

    func show(_ state: ServerStatus.State) {
        status.state = state
        board.show(status)
    }

    private func sample() {
        let readings = loops.map { Sampler.read($0.loop, $0.counters) }
        status.loops = loops.indices.map { describe($0, readings[$0], earlier: before[$0]) }
        before = readings
        board.show(status)
    }

    private static func read(_ loop: RunLoop, _ counters: HostCounters) -> Reading {
        Reading(
            at: .now, requests: counters.requests.value, statistics: loop.statistics, processor: counters.processorTime)
    }

    private func describe(_ index: Int, _ now: Reading, earlier: Reading?) -> LoopStatus {
        let (name, loop, counters) = loops[index]
        var result = LoopStatus(name: name, loop: loop, counters: counters, servesHTTP: index > 0)
        guard let earlier else { return result }
        let seconds = max(earlier.at.duration(to: now.at) / .seconds(1), 0.001)
        func rate(_ count: Int) -> Double { Double(max(0, count)) / seconds }
        result.requestsPerSecond = rate(now.requests - earlier.requests)
        result.passesPerSecond = rate(Int(now.statistics.passes - earlier.statistics.passes))
        result.eventsPerSecond = rate(LoopStatus.delivered(now.statistics) - LoopStatus.delivered(earlier.statistics))
        result.busy = min(1, max(0, (busyTime(now) - busyTime(earlier)) / .seconds(1) / seconds))
        let old = status.loops[index]
        result.requestHistory = (old.requestHistory + [result.requestsPerSecond]).suffix(LoopStatus.historyLength)
        result.busyHistory = (old.busyHistory + [result.busy]).suffix(LoopStatus.historyLength)
        return result
    }

    /// On a system without a processor clock for each thread: the loop's working time, which leaves out the callbacks of C libraries.
    private func busyTime(_ reading: Reading) -> Duration { reading.processor ?? reading.statistics.timeWorking }
}
