// W13: what it costs to look into a loop. W1, W4 and W7 while the loop is recorded, watched, or timed for its slowest callouts; the peer is the
// same loop while nobody looks.

import EventLoop
import EventLoopObserving

/// Who looks into a loop while it is measured.
enum LoopObservation: Sendable {
    case none, recording, slowestCallouts, watchdog

    private static let sharedWatchdog = RunLoop.Watchdog { _ in }

    /// Begins before the first run. The recording ends with the loop: reading it is not measured.
    func begin(_ loop: RunLoop) {
        switch self {
        case .none: break
        case .recording: loop.startRecording()
        case .watchdog: Self.sharedWatchdog.watch(loop)
        case .slowestCallouts: _ = loop.statistics.slowestCallouts
        }
    }
}

enum W13Observed {
    static var cases: [Case] {
        let cascades = [1, 100].map { active in
            Case(
                "W13.cascade.a\(active)", "pipe cascade, 100 pipes, \(active) active, an event of a recorded loop",
                goals: [Goal("unobserved", ratio: 1.05)], gated: [.allocations, .systemCalls],
                contenders: [
                    Contender("eventloop") { W1Cascade.eventLoop(100, active, .one, $0, observing: .recording) },
                    Contender("watched") { W1Cascade.eventLoop(100, active, .one, $0, observing: .watchdog) },
                    Contender("slowest") { W1Cascade.eventLoop(100, active, .one, $0, observing: .slowestCallouts) },
                    Contender("unobserved") { W1Cascade.eventLoop(100, active, .one, $0) },
                ])
        }
        let echo = Case(
            "W13.echo", "echo server, 100 connections, processor time a request of a recorded loop", metric: .processorTime,
            amount: .upTo(200_000), goals: [Goal("unobserved", ratio: 1.05)],
            contenders: [
                Contender("eventloop") { W7Echo.eventLoop(100, $0, observing: .recording) },
                Contender("slowest") { W7Echo.eventLoop(100, $0, observing: .slowestCallouts) },
                Contender("unobserved") { W7Echo.eventLoop(100, $0) },
            ])
        let turn = Case(
            "W13.turn", "a handler that does nothing but signal its source again, a pass of a recorded loop",
            goals: [Goal("unobserved", ratio: 1.4)],
            contenders: [
                Contender("eventloop") { W4Pass.eventLoopTurns($0, observing: .recording) },
                Contender("unobserved") { W4Pass.eventLoopTurns($0) },
            ])
        return cascades + [echo, turn]
    }
}
