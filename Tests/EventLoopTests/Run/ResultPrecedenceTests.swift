// Rules proved here:
// - If a run has several reasons to return, its result is the first of handledSource, stopped, timedOut, finished.
// - The other reasons do not affect the next run.

import EventLoop
import EventLoopTestSupport
import Testing

struct Reasons: OptionSet, Sendable, Hashable, CustomTestStringConvertible {
    let rawValue: Int
    static let handled = Reasons(rawValue: 1)
    static let stop = Reasons(rawValue: 2)
    static let limit = Reasons(rawValue: 4)
    static let empty = Reasons(rawValue: 8)

    static let everySet = (1...15).map(Reasons.init(rawValue:))

    var testDescription: String {
        [(Self.handled, "handled"), (.stop, "stop"), (.limit, "limit"), (.empty, "empty")].filter { contains($0.0) }.map(\.1).joined(
            separator: "+")
    }

    var winner: RunLoop.RunResult {
        if contains(.handled) { return .handledSource }
        if contains(.stop) { return .stopped }
        if contains(.limit) { return .timedOut }
        return .finished
    }
}

@Suite struct `The result of a run` {
    /// All reasons arise in one callout: of a custom source if `reasons` includes a handled source, otherwise of a timer.
    @Test(arguments: Reasons.everySet)
    func `is the first reason by rank`(_ reasons: Reasons) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let idle = loop.addIdleSource()
            let act: @Sendable () -> Void = {
                trace.add("act")
                if reasons.contains(.stop) { loop.stop() }
                if reasons.contains(.limit) { clock.advance(by: .seconds(20)) }
                if reasons.contains(.empty) { idle.invalidate() }
            }
            if reasons.contains(.handled) {
                loop.addSource(signaled: true) { source in
                    if reasons.contains(.empty) { source.invalidate() }
                    act()
                }
            } else {
                loop.addTimer(at: clock.now) { _ in act() }
            }
            #expect(loop.run(for: .seconds(10), returnAfterSourceHandled: true) == reasons.winner)
            #expect(trace.take() == (reasons.contains(.handled) ? "E T S act X" : "E T S W A act X"))

            // The next run is not affected.
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    /// Tests the same for a port, at step 9.
    @Test(arguments: Reasons.everySet.filter { $0.contains(.handled) })
    func `is handledSource for a port, whatever other reasons arise`(_ reasons: Reasons) throws {
        try inManualTime { loop, clock, trace in
            let idle = loop.addIdleSource()
            try loop.addReadyPipe { source in
                if reasons.contains(.stop) { loop.stop() }
                if reasons.contains(.limit) { clock.advance(by: .seconds(20)) }
                if reasons.contains(.empty) {
                    idle.invalidate()
                    source.invalidate()
                }
            }
            #expect(loop.run(for: .seconds(10), returnAfterSourceHandled: true) == .handledSource)
        }
    }

    /// In CFRunLoop a passed limit consumes a stop, and the caller's loop continues.
    @Test(arguments: Callout.allCases)
    func `is stopped, not timedOut, when the limit passes in the callout that stops:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            try callout.arrange(loop, clock, trace) {
                clock.advance(by: .seconds(20))
                loop.stop()
            }
            #expect(loop.run(for: .seconds(10)) == .stopped)
        }
    }

    @Test func `is stopped when a run of limit 0 is stopped`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.beforeTimers) { loop.stop() }
            #expect(loop.run(for: .zero) == .stopped)
            #expect(trace.take() == "E T S X")
        }
    }

    @Test func `does not depend on a source that an earlier pass handled`() throws {
        try inManualTime { loop, clock, trace in
            let idle = loop.addIdleSource()
            loop.addSource(signaled: true) { $0.invalidate() }
            loop.addTimer(at: clock.now + .seconds(1)) { _ in idle.invalidate() }
            #expect(loop.run(for: .seconds(10)) == .finished)
        }
    }
}
