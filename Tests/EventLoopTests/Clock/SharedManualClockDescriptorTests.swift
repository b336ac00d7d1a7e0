// A shared clock and real descriptors (semantics 14.4): if one loop makes a descriptor of another loop ready, time does not jump before the
// other loop has served it, even if the other loop still sleeps.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct SharedManualClockDescriptorTests {
    /// Runs each of `programs` on its own thread until `limit` milliseconds. All loops use one clock that advances by itself.
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

    @Test func `a loop reads from a pipe at the same time at which another loop wrote to it`() throws {
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
                            // This timer would fire first if time did not wait for the reader.
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

    @Test func `a request and its reply over pipes take no time, however many loops share the clock`() throws {
        for round in 0..<20 {
            let trace = Trace()
            let count = 4
            // A ring: each loop but the last writes to the pipe of the next loop.
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
                        // A deadline of this loop that time could jump to.
                        loop.add(RunLoop.Timer(fireAt: .ms(11), interval: .milliseconds(10)) { _ in })
                    }
                }
            }
            _ = try Self.share(until: 35, programs)
            #expect(trace.description == "0@10 1@10 2@10 3@10 0@20 1@20 2@20 3@20 0@30 1@30 2@30 3@30", "round \(round)")
        }
    }
}
