// Rules proved here:
// - The signal is a flag of the source, not of a loop, and does not wake a loop. Several signals before a perform are one. The signal
//   survives removing and adding the source, and a thread may signal before the source is in a loop.
// - The loop clears the signal before it calls `perform`. If `perform` signals its own source or another one, or adds a signaled source,
//   the next pass serves that source, without a sleep in between and whatever its order.
// - The loop serves the sources of a pass by order, then by the time of their first pending signal. Equal sources are distinct.
// - One signal causes one perform, however many loops and modes the source is in.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct `A signal` {
    @Test func `is a flag: several before a perform are one`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            let source = loop.addSource { source in trace.add("source:\(source.isSignaled)") }
            #expect(!source.isSignaled)
            source.signal()
            source.signal()
            source.signal()
            #expect(source.isSignaled)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S source:false T S W A X")
            #expect(!source.isSignaled)
        }
    }

    @Test func `can precede the addition of the source to any loop`() throws {
        try inManualTime { loop, _, trace in
            let source = RunLoop.CustomSource { trace.add("source") }
            source.signal()
            #expect(source.isSignaled)
            loop.add(source)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "source")
        }
    }

    @Test func `survives removing and adding`() throws {
        try inManualTime { loop, _, trace in
            let source = loop.addSource(signaled: true) { _ in trace.add("source") }
            loop.remove(source)
            #expect(source.isSignaled)
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            loop.add(source)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "source")
        }
    }

    @Test func `stays pending if a run ends before it serves the source`() throws {
        try inManualTime { loop, _, trace in
            let source = loop.addSource(order: 2, signaled: true) { _ in trace.add("later") }
            loop.addSource(order: 1, signaled: true) { _ in trace.add("first") }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "first")
            #expect(source.isSignaled)
        }
    }

    @Test(arguments: Callout.allCases)
    func `from a callout is served before the loop sleeps:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            // Its order is after that of the callout's source.
            let source = loop.addSource(order: 1) { _ in trace.add("signaled \(clock.now.nanoseconds)") }
            try callout.arrange(loop, clock, trace) { source.signal() }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            let rest = "signaled 0 T S W A X"
            let expected =
                switch callout {
                // Signaled before step 4: it runs in this pass.
                case .entry, .beforeTimers, .beforeSources: "E T S \(rest)"
                case .block: "E T S block \(rest)"
                // The loop serves performs at step 4: it runs in this pass or in the next.
                case .perform: "E T S perform T S \(rest)"
                // Signaled after the snapshot: it runs in the next pass, without a sleep in between.
                case .source: "E T S source T S \(rest)"
                case .port: "E T S port T S \(rest)"
                case .beforeWaiting, .afterWaiting: "E T S W A T S \(rest)"
                case .timer: "E T S W A timer T S \(rest)"
                }
            let seen = trace.take()
            if callout == .perform {
                #expect(seen == expected || seen == "E T S perform \(rest)")
            } else {
                #expect(seen == expected)
            }
        }
    }

    @Test func `in its own perform is a new signal, and is served without a sleep`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let rounds = Counter()
            loop.addSource(signaled: true) { source in
                trace.add("(\(source.isSignaled)")
                if rounds.increment() < 3 { source.signal() }
                trace.add("\(source.isSignaled))")
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S (false true) T S (false true) T S (false false) T S W A X")
        }
    }

    @Test(arguments: [-1, 0, 1])
    func `to another source in a perform waits for the next pass, whatever that source's order:`(_ order: Int) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let other = loop.addSource(order: order) { _ in trace.add("other \(clock.now.nanoseconds)") }
            loop.addSource(order: 0, signaled: true) { _ in
                trace.add("first")
                other.signal()
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S first T S other 0 T S W A X")
        }
    }

    @Test(arguments: [-1, 0, 1])
    func `to a source added in a perform waits for the next pass, whatever that source's order:`(_ order: Int) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addSource(order: 0, signaled: true) { _ in
                trace.add("first")
                loop.addSource(order: order, signaled: true) { _ in trace.add("added \(clock.now.nanoseconds)") }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S first T S added 0 T S W A X")
        }
    }

    // MARK: Order

    @Test func `is served by order`() throws {
        try inManualTime { loop, _, trace in
            for order in [3, -5, 0, 1_000, -1, .min, .max] {
                loop.addSource(order: order, signaled: true) { source in trace.add("\(source.order)") }
            }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "\(Int.min) -5 -1 0 3 1000 \(Int.max)")
        }
    }

    @Test func `is served by the time of the first pending signal if orders are equal`() throws {
        try inManualTime { loop, _, trace in
            let sources = ["a", "b", "c", "d"].map { name in loop.addSource { _ in trace.add(name) } }
            sources[2].signal()
            sources[0].signal()
            sources[3].signal()
            sources[2].signal()  // A second signal changes nothing.
            sources[1].signal()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "c a d b")
            // After a perform, only new signals decide the order.
            sources[3].signal()
            sources[2].signal()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "d c")
        }
    }

    @Test func `is served by order before the time of the signal`() throws {
        try inManualTime { loop, _, trace in
            let late = loop.addSource(order: 2) { _ in trace.add("order 2") }
            let early = loop.addSource(order: 1) { _ in trace.add("order 1") }
            late.signal()
            early.signal()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "order 1 order 2")
        }
    }

    /// CF treats sources with equal contexts as one, and never adds the second.
    @Test func `to each of two sources that look the same is served`() throws {
        try inManualTime { loop, _, trace in
            let body: @Sendable () -> Void = { trace.add("performed") }
            let (first, second) = (RunLoop.CustomSource(perform: body), RunLoop.CustomSource(perform: body))
            #expect(loop.add(first))
            #expect(loop.add(second))
            first.signal()
            second.signal()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "performed performed")
            loop.remove(first)
            #expect(loop.contains(second))
        }
    }

    // MARK: Several modes, several loops

    @Test func `is one signal for all modes`() throws {
        try inManualTime { loop, _, trace in
            let source = RunLoop.CustomSource { trace.add("source") }
            for mode in ["a", "b", .common] as [RunLoop.Mode] { loop.add(source, forMode: mode) }
            source.signal()
            #expect(loop.run(mode: "b", for: .zero) == .timedOut)
            #expect(trace.take() == "source")
            #expect(loop.run(mode: "a", for: .zero) == .timedOut)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    @Test func `is one signal for all loops, and the first loop that runs performs it`() throws {
        try onFreshThread { first in
            let trace = Trace()
            let source = RunLoop.CustomSource { trace.add(first.isCurrent ? "first" : "second") }
            first.add(source)
            source.signal()
            try onFreshThread { second in
                second.add(source)
                _ = second.run(for: .zero)
                #expect(!source.isSignaled)
            }
            _ = first.run(for: .zero)
            #expect(trace.take() == "second")
            source.signal()
            _ = first.run(for: .zero)
            #expect(trace.take() == "first")
        }
    }

    @Test func `is performed once even if two loops race for it`() throws {
        let performed = Counter()
        let source = RunLoop.CustomSource { performed.increment() }
        let (first, second) = (RunningLoop { $0.add(source) }, RunningLoop { $0.add(source) })
        for number in 1...500 {
            source.signal()
            first.loop.wakeUp()
            second.loop.wakeUp()
            try waitUntil("signal \(number)") { performed.value >= number }
        }
        try first.end()
        try second.end()
        #expect(performed.value == 500)
    }
}
