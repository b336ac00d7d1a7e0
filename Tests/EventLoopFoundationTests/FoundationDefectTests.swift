// What Foundation's run loop on Linux gets wrong, and people have complained of: one test for each item that
// concerns a call which the overlay has.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport
import Testing

@Suite struct FoundationDefectTests {
    @Test func `12-1: a timer made without a date does not fire at once`() throws {
        try inManualTime { loop, clock, trace in
            loop.add(Timer(timeInterval: 60, repeats: false) { _ in trace.add("@\(clock.ms)") })
            loop.run(until: Date(timeIntervalSinceNow: 3600))
            #expect(trace.description == "@60000")
        }
    }

    @Test func `12-2: a tolerance can be set`() {
        let timer = Timer(timeInterval: 60, repeats: true) { _ in }
        timer.tolerance = 6
        #expect(timer.tolerance as TimeInterval == 6)
    }

    @Test func `12-4: a run before a date that is now does not hang, and serves what is ready`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            try loop.addReadyPipe { _ in trace.add("read") }
            #expect(loop.run(mode: .default, before: Date()))
            #expect(trace.description == "read")
        }
    }

    @Test func `12-9: a block performed on a sleeping loop is performed at once, and the run that waits for it returns`() throws {
        let isReady = Gate()
        let published = Box<RunLoop?>(nil)
        let performed = Box(false)
        let thread = joinableThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            published.value = loop
            isReady.open()
            while !performed.value && loop.run(mode: .default, before: .distantFuture) {}  // ends: with the block
        }
        isReady.wait()
        let loop = published.value!
        try waitUntilAsleep(loop)
        loop.perform(inModes: [.default], block: { performed.value = true })
        try thread.join()
    }

    @Test func `12-11: a tiny repeat interval does not kill the process`() throws {
        try inManualTime { loop, _, trace in
            Timer.scheduledTimer(withTimeInterval: 1e-12, repeats: true) { timer in
                trace.add("fired")
                timer.invalidate()
            }
            loop.run(until: Date(timeIntervalSinceNow: 3600))
            #expect(trace.description == "fired")
        }
    }

    @Test func `12-13: an invalidated timer lets go of its block`() throws {
        try inManualTime { _, _, trace in
            let timer = { () -> Timer in
                let canary = Canary { trace.add("let go") }
                return Timer.scheduledTimer(withTimeInterval: 60, repeats: true) { _ in canary.touch() }
            }()
            timer.invalidate()
            #expect(trace.description == "let go")
        }
    }

    @Test func `12-14: somebody's stop does not break a wait for a condition`() throws {
        try inManualTime { loop, clock, _ in
            let isDone = Box(false)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            for seconds in [1, 2, 3] { loop.perform(after: .seconds(seconds)) { loop.stop() } }
            loop.perform(after: .seconds(4)) { loop.perform { isDone.value = true } }
            while !isDone.value && loop.run(mode: .default, before: .distantFuture) {}  // ends: with the condition
            #expect(clock.ms == 4000)
        }
    }

    @Test func `12-19: many runs with short limits all end`() throws {
        try onFreshThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            for _ in 0..<200 { #expect(loop.run(mode: .default, before: Date(timeIntervalSinceNow: 0.0001))) }
        }
    }

    @Test(arguments: Callout.allCases)
    func `12-20: the limit of a run is not lost behind a nested run`(place: Callout) throws {
        try inManualTime { loop, clock, trace in
            let alive = loop.keepAlive()
            let nestedAlive = loop.keepAlive(forMode: "nested")
            defer {
                alive.cancel()
                nestedAlive.cancel()
            }
            try place.arrange(loop, clock, trace) {
                // Longer than the outer run may last.
                _ = loop.run(mode: "nested", before: Date(timeIntervalSinceNow: 7200))
            }
            loop.run(until: Date(timeIntervalSinceNow: 3600))
            #expect(clock.ms > 7_190_000 && clock.ms <= 7_200_000, "it returned with the nested run, not later")
        }
    }

    @Test func `12-20: a run whose mode holds only a block returns`() throws {
        try inManualTime { loop, _, trace in
            loop.performBlock { trace.add("block") }
            #expect(loop.run(mode: .default, before: .distantFuture))
            #expect(trace.description == "block")
        }
    }
}
