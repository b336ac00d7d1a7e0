// Known defects of Foundation's run loop on Linux that users have reported: one test for each defect that concerns a call of the overlay.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport
import Testing

@Suite struct FoundationDefectTests {
    @Test func `12-1: a timer made without a date does not fire immediately`() throws {
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

    @Test func `12-4: a run before the current date does not hang, and serves ready items`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            try loop.addReadyPipe { _ in trace.add("read") }
            #expect(loop.run(mode: .default, before: Date()))
            #expect(trace.description == "read")
        }
    }

    @Test func `12-9: a sleeping loop performs a new block immediately, and the run that waits for it returns`() throws {
        let isReady = Gate()
        let published = Box<RunLoop?>(nil)
        let performed = Box(false)
        let thread = joinableThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            published.value = loop
            isReady.open()
            while !performed.value && loop.run(mode: .default, before: .distantFuture) {}  // ends: after the block
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

    @Test func `12-13: an invalidated timer releases its block`() throws {
        try inManualTime { _, _, trace in
            let timer = { () -> Timer in
                let canary = Canary { trace.add("let go") }
                return Timer.scheduledTimer(withTimeInterval: 60, repeats: true) { _ in canary.touch() }
            }()
            timer.invalidate()
            #expect(trace.description == "let go")
        }
    }

    @Test func `12-14: a stop by other code does not break a wait for a condition`() throws {
        try inManualTime { loop, clock, _ in
            let isDone = Box(false)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            for seconds in [1, 2, 3] { loop.perform(after: .seconds(seconds)) { loop.stop() } }
            loop.perform(after: .seconds(4)) { loop.perform { isDone.value = true } }
            while !isDone.value && loop.run(mode: .default, before: .distantFuture) {}  // ends: when the condition holds
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
    func `12-20: a nested run does not disable the limit of the outer run`(place: Callout) throws {
        try inManualTime { loop, clock, trace in
            let alive = loop.keepAlive()
            let nestedAlive = loop.keepAlive(forMode: "nested")
            defer {
                alive.cancel()
                nestedAlive.cancel()
            }
            try place.arrange(loop, clock, trace) {
                // The nested run may last longer than the outer run.
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
