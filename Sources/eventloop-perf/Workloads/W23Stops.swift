// W23: how long after `stop()` a run returns while four threads add and invalidate items without pause. One operation is one stop. The figure
// is the median of all, or the longest.
//
// The threads compete with the loop's for the processors, so a part of the figure is the kernel's scheduling. If the loop falls behind the
// threads, its queue grows, and with it each stop. Therefore the threads end after a stop that has lasted a second, and the rest is left out.

import CPerfPeers
import EventLoop
import Glibc
import Synchronization

enum W23Stops {
    private static let threads = 4
    private static let amount = Amount.fixed(full: 100, quick: 100)
    /// No peer: the goal.
    private static let limit = Contender("50-ms") { count in Measurement(ops: count, value: 50_000_000) }

    static var cases: [Case] {
        [Items.sources, .timers].flatMap { items in
            [
                Case(
                    "W23.\(items)", "a run returns after stop(), while four threads add and invalidate \(items), median", metric: .value,
                    amount: amount, goals: [Goal("50-ms", ratio: 1)],
                    contenders: [Contender("eventloop") { stops($0, items, \.median) }, limit]),
                Case(
                    "W23.\(items)-longest", "the same, the longest of 100", metric: .value, amount: amount,
                    goals: [Goal("50-ms", ratio: 1)], contenders: [Contender("eventloop") { stops($0, items, \.longest) }, limit]),
            ]
        }
    }

    private enum Items: String, CustomStringConvertible {
        case sources, timers
        var description: String { rawValue }
    }

    private struct Latencies {
        var median: Double
        var longest: Double
    }

    private static func stops(_ count: Int, _ items: Items, _ figure: (Latencies) -> Double) -> Measurement {
        let run = StoppedRun()
        let looping = PlainThread { run.runUntilOver() }
        let loop = run.waitForLoop()
        let gang = Gang(producers: threads, posts: 1) { _ in storm(loop, items, run) }
        gang.open()
        var latencies: [Double] = []
        while latencies.count < count, !run.isOver.load(ordering: .relaxed) { latencies.append(Double(run.stop())) }
        run.isOver.store(true, ordering: .relaxed)
        loop.stop(sticky: true)
        gang.join()
        looping.join()
        return Measurement(ops: count, value: figure(Latencies(median: Spread(latencies)!.median, longest: latencies.max()!)))
    }

    private static func storm(_ loop: RunLoop, _ items: Items, _ run: StoppedRun) {
        let descriptor = perf_idle_descriptor()
        while !run.isOver.load(ordering: .relaxed) {
            switch items {
            case .sources:
                // The descriptor is open.
                let source = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { _, _ in }
                loop.add(source)
                source.invalidate()
            case .timers:
                let timer = RunLoop.Timer(after: .seconds(3_600)) { _ in }
                loop.add(timer)
                timer.invalidate()
            }
        }
        close(descriptor)
    }
}

/// A thread that runs its loop again whenever it has been stopped, and another one that stops it.
private final class StoppedRun: Sendable {
    let isOver = Atomic<Bool>(false)
    /// In nanoseconds.
    private static let longest = 1_000_000_000
    private let loop = Mutex<RunLoop?>(nil)
    private let runs = Atomic<Int>(0)
    private let returned = Atomic<Int>(0)
    private let returnedAt = Atomic<Int>(0)

    func runUntilOver() {
        let own = RunLoop.current
        own.add(RunLoop.CustomSource {})  // without one, a run returns at once
        loop.withLock { $0 = own }
        while !isOver.load(ordering: .relaxed) {
            own.perform { self.runs.add(1, ordering: .relaxed) }
            own.run()
            returnedAt.store(Int(perf_wall_ns()), ordering: .relaxed)
            returned.add(1, ordering: .releasing)
        }
    }

    func waitForLoop() -> RunLoop {
        while true {  // ends: the thread has been started
            if let loop = loop.withLock({ $0 }) { return loop }
            usleep(100)
        }
    }

    /// Nanoseconds from the call of `stop()` until the run has returned.
    func stop() -> Int {
        let before = returned.load(ordering: .acquiring)
        // Ends: the thread runs its loop again, or the loop does not come to what it is to perform.
        let asked = Int(perf_wall_ns())
        while runs.load(ordering: .relaxed) <= before {
            usleep(500)
            if Int(perf_wall_ns()) - asked > Self.longest { isOver.store(true, ordering: .relaxed) }
        }
        usleep(5_000)
        let start = Int(perf_wall_ns())
        waitForLoop().stop()
        while returned.load(ordering: .acquiring) == before {  // ends: the run is stopped
            usleep(500)
            if Int(perf_wall_ns()) - start > Self.longest { isOver.store(true, ordering: .relaxed) }
        }
        return returnedAt.load(ordering: .relaxed) - start
    }
}
