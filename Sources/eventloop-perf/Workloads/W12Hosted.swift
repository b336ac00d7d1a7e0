// W12: a post reaches its handler on a loop that another loop drives. One operation is one post to a loop that sleeps; the figure is the
// mean time from the post to its handler.

import CPerfPeers
import EventLoop
import Glibc
import Synchronization

enum W12Hosted {
    static var cases: [Case] {
        [
            Case(
                "W12.post", "a post reaches its handler on a loop hosted by poll", metric: .value, amount: .upTo(1_000),
                goals: [Goal("alone", ratio: 1.6)],
                contenders: [
                    Contender("eventloop") { postsArrive($0, runHosted) },
                    Contender("alone") { postsArrive($0, { _ = $0.run() }) },
                ])
        ]
    }

    /// An idle host is not woken. One operation is a wait of one second; the program ends if the host is woken.
    static var idle: Case {
        Case(
            "idle.hosted", "processor time of a second of a host whose loop has nothing to do", metric: .processorTime,
            amount: .fixed(full: 1, quick: 1), isHeavy: true,
            contenders: [
                Contender("eventloop") { ops in
                    measured(ops: ops) { meter in
                        let loop = RunLoop.current
                        let timer = RunLoop.Timer(every: .seconds(1_000)) { _ in }
                        loop.add(timer)
                        let hosted = try! loop.hosted()  // a base can be made
                        while isReadable(hosted.descriptor, 0) { hosted.step() }  // ends: nothing is left to do
                        meter.begin()
                        for _ in 0..<ops {
                            precondition(!isReadable(hosted.descriptor, 1_000), "an idle loop has woken its host")
                        }
                        meter.end()
                        hosted.invalidate()
                        timer.invalidate()
                    }
                }
            ])
    }

    private static func isReadable(_ descriptor: Int32, _ milliseconds: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, milliseconds) > 0
    }

    /// Drives a loop until it is stopped.
    @Sendable private static func runHosted(_ loop: RunLoop) {
        let hosted = try! loop.hosted()  // a base can be made
        while hosted.step() != .stopped { _ = isReadable(hosted.descriptor, -1) }  // ends: the last post stops the loop
        hosted.invalidate()
    }

    /// The times of one run.
    private final class Arrivals: Sendable {
        let loop = Mutex<RunLoop?>(nil)
        let latest = Atomic<Int64>(0)
    }

    private static func postsArrive(_ ops: Int, _ run: @escaping @Sendable (RunLoop) -> Void) -> Measurement {
        let arrivals = Arrivals()
        let total = Atomic<Int64>(0)
        measure(ops, arrivals, run) { total.add($0, ordering: .relaxed) }
        return Measurement(ops: ops, value: Double(total.load(ordering: .relaxed)) / Double(ops))
    }

    private static func measure(
        _ ops: Int, _ arrivals: Arrivals, _ run: @escaping @Sendable (RunLoop) -> Void, _ count: (Int64) -> Void
    ) {
        let thread = PlainThread {
            let idle = RunLoop.current.keepAlive()
            arrivals.loop.withLock { $0 = RunLoop.current }
            run(RunLoop.current)
            idle.cancel()
        }
        while arrivals.loop.withLock({ $0 == nil }) { usleep(100) }
        let loop = arrivals.loop.withLock { $0! }
        for index in 0..<ops {
            perf_let_it_sleep()
            arrivals.latest.store(0, ordering: .relaxed)
            let posted = RunLoop.Instant.now.nanoseconds
            let isLast = index == ops - 1
            loop.perform {
                arrivals.latest.store(RunLoop.Instant.now.nanoseconds, ordering: .releasing)
                if isLast { RunLoop.current.stop() }
            }
            while arrivals.latest.load(ordering: .acquiring) == 0 { sched_yield() }
            count(arrivals.latest.load(ordering: .relaxed) - posted)
        }
        thread.join()
    }
}
