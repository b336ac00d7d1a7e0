// A shared clock and real descriptors (semantics 14.4): time does not jump while the kernel has something for one of the loops that
// another of them has put there, though that loop has not woken for it yet.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct SharedManualClockDescriptorTests {
    /// Runs each of `programs` on a thread of its own, all loops on one clock that advances by itself, until `limit` milliseconds.
    private static func share(
        until limit: Int64, _ programs: [@Sendable (RunLoop, RunLoop.ManualClock) throws -> Void]
    ) throws -> [RunLoop.RunResult] {
        let clock = RunLoop.ManualClock(autoAdvance: true)
        let ready = Box(0)
        let threads = programs.map { program in
            joinableThread { loop in
                loop.use(clock)
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                try program(loop, clock)
                ready.increment()
                try waitUntil { ready.value == programs.count }
                return loop.run(until: .ms(limit))
            }
        }
        return try threads.map { try $0.join() }
    }

    @Test func `what one loop writes to another's pipe is read at the time at which it was written`() throws {
        for round in 0..<100 {
            let trace = Trace()
            let pipe = Pipe()
            let results = try Self.share(
                until: 100,
                [
                    { loop, clock in
                        for date: Int64 in [10, 20, 30] {
                            loop.add(
                                RunLoop.Timer(fireAt: .ms(date)) { _ in
                                    trace.add("write@\(clock.ms)")
                                    pipe.write()
                                })
                            // Would come first if time did not wait for the reader.
                            loop.add(RunLoop.Timer(fireAt: .ms(date + 1)) { _ in trace.add("later@\(clock.ms)") })
                        }
                    },
                    { loop, clock in
                        loop.add(
                            try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                                pipe.readAll()
                                trace.add("read@\(clock.ms)")
                            })
                    },
                ])
            #expect(
                trace.description == "write@10 read@10 later@11 write@20 read@20 later@21 write@30 read@30 later@31", "round \(round)")
            #expect(results == [.timedOut, .timedOut])
        }
    }

    @Test func `a request and its answer over pipes take no time, however many loops share the clock`() throws {
        for round in 0..<20 {
            let trace = Trace()
            let count = 4
            // A ring: each passes on what it reads, and the last closes the round.
            let pipes = (0..<count).map { _ in Pipe() }
            let programs = (0..<count).map { index in
                { @Sendable (loop: RunLoop, clock: RunLoop.ManualClock) in
                    loop.add(
                        try RunLoop.DescriptorSource(descriptor: pipes[index].readEnd, events: .read) { _, _ in
                            pipes[index].readAll()
                            trace.add("\(index)@\(clock.ms)")
                            if index + 1 < count { pipes[index + 1].write() }
                        })
                    if index == 0 {
                        loop.add(RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in pipes[0].write() })
                    } else {
                        // Deadlines of its own that time could jump to.
                        loop.add(RunLoop.Timer(fireAt: .ms(11), interval: .milliseconds(10)) { _ in })
                    }
                }
            }
            _ = try Self.share(until: 35, programs)
            #expect(trace.description == "0@10 1@10 2@10 3@10 0@20 1@20 2@20 3@20 0@30 1@30 2@30 3@30", "round \(round)")
        }
    }
}
