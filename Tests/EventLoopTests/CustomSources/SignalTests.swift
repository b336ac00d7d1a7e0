// Rules proved here:
// - The signal is a flag of the source, of no loop: it wakes nobody, many are one, it survives removing and adding, and may come first.
// - It is cleared before `perform`: a signal made in it is a new one, served in the next pass without a sleep, and so is a signal to any
//   other source and a source added in it, whatever their order.
// - Sources of a pass go by order, then by the time of their first pending signal. Equal sources are two.
// - One signal is one perform, however many loops and modes the source is in.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `A signal` {
    @Test func `is a flag: many before a perform are one`() throws {
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

    @Test func `may come before the source is in any loop`() throws {
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

    @Test func `is kept by a run that does not get to it`() throws {
        try inManualTime { loop, _, trace in
            let source = loop.addSource(order: 2, signaled: true) { _ in trace.add("later") }
            loop.addSource(order: 1, signaled: true) { _ in trace.add("first") }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "first")
            #expect(source.isSignaled)
        }
    }

    @Test(arguments: Callout.allCases)
    func `from a callout is not slept over:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            // Of an order after that of the source callout.
            let source = loop.addSource(order: 1) { _ in trace.add("signaled \(clock.now.nanoseconds)") }
            try callout.arrange(loop, clock, trace) { source.signal() }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            let rest = "signaled 0 T S W A X"
            let expected =
                switch callout {
                // Before step 4: in this pass.
                case .entry, .beforeTimers, .beforeSources: "E T S \(rest)"
                case .block: "E T S block \(rest)"
                // A perform is served at step 4: in this pass or in the next.
                case .perform: "E T S perform T S \(rest)"
                // After its snapshot: in the next pass, and no sleep is between.
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

    @Test func `in its own perform is a new one, served without a sleep`() throws {
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
    func `of another source in a perform waits for the next pass, whatever its order:`(_ order: Int) throws {
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
    func `of a source added in a perform waits for the next pass, whatever its order:`(_ order: Int) throws {
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

    @Test func `goes by order`() throws {
        try inManualTime { loop, _, trace in
            for order in [3, -5, 0, 1_000, -1, .min, .max] {
                loop.addSource(order: order, signaled: true) { source in trace.add("\(source.order)") }
            }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "\(Int.min) -5 -1 0 3 1000 \(Int.max)")
        }
    }

    @Test func `of equal order goes by the first pending signal`() throws {
        try inManualTime { loop, _, trace in
            let sources = ["a", "b", "c", "d"].map { name in loop.addSource { _ in trace.add(name) } }
            sources[2].signal()
            sources[0].signal()
            sources[3].signal()
            sources[2].signal()  // A second one changes nothing.
            sources[1].signal()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "c a d b")
            // What was performed starts anew.
            sources[3].signal()
            sources[2].signal()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "d c")
        }
    }

    @Test func `order comes before the time of the signal`() throws {
        try inManualTime { loop, _, trace in
            let late = loop.addSource(order: 2) { _ in trace.add("order 2") }
            let early = loop.addSource(order: 1) { _ in trace.add("order 1") }
            late.signal()
            early.signal()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "order 1 order 2")
        }
    }

    /// CF takes sources with equal contexts for one, and never adds the second.
    @Test func `of sources that look the same is each its own`() throws {
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

    @Test func `is one for all modes`() throws {
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

    @Test func `is one for all loops: whoever comes first performs it`() throws {
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

    @Test func `is performed once though two loops race for it`() throws {
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
