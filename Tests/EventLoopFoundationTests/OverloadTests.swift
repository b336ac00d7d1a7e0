// Rules proved here: with both modules imported,
// - a call that could be meant for the core is the core's (the types say so when this file is compiled, the results when it runs);
// - a call that has a Date or seconds in it is the overlay's;
// - Date and TimeInterval are there without an import of Foundation, and this file has none.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport
import Testing

/// Compiles only if `Value` is exactly the type of `value`.
@discardableResult
private func isExactly<Value>(_ type: Value.Type, _ value: Value) -> Value { value }

@Suite struct OverloadTests {
    @Test func `a run until an unqualified distant future is the core's, and ends with a stop`() throws {
        let results = try inManualTime { loop, _, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.perform { loop.stop() }
            let inferred = loop.run(until: .distantFuture)
            return isExactly(RunLoop.RunResult.self, inferred)
        }
        #expect(results == .stopped)
    }

    @Test func `runs until an unqualified now, with and without a mode, are the core's`() throws {
        let results = try inManualTime { loop, _, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let (first, second, third) = (
                loop.run(mode: .default, until: .now), loop.run(until: .now), loop.run(until: .distantPast, returnAfterSourceHandled: true)
            )
            return [isExactly(RunLoop.RunResult.self, first), second, third]
        }
        #expect(results == [.timedOut, .timedOut, .timedOut])
    }

    @Test func `a run until a Date is the overlay's, however the Date is written`() throws {
        try inManualTime { loop, clock, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let date = Date(timeIntervalSinceNow: 3600)
            isExactly(Void.self, loop.run(until: date))
            isExactly(Void.self, loop.run(until: .init(timeIntervalSinceNow: 3600)))
            isExactly(Void.self, loop.run(until: Date.now.addingTimeInterval(3600)))
            isExactly(Void.self, loop.run(until: Date.now))
            // Not one of them was the core's, for which all dates would be the same instant.
            #expect(clock.ms > 3 * 3_600_000 - 5_000 && clock.ms <= 3 * 3_600_000)
        }
    }

    @Test func `before is a label of the overlay's: its distant future is a Date's`() throws {
        let isRun = try inManualTime { loop, _, _ in
            loop.perform {}
            return isExactly(Bool.self, loop.run(mode: .default, before: .distantFuture))
        }
        #expect(isRun)
    }

    @Test func `the loop's run without arguments is the core's`() throws {
        let result = try inManualTime { loop, _, _ in
            let result = loop.run()
            return isExactly(RunLoop.RunResult.self, result)
        }
        #expect(result == .finished)
    }

    @Test func `a perform with a trailing closure is the core's, with Foundation's label the overlay's, and they do the same`() throws {
        let trace = try inManualTime { loop, _, trace in
            isExactly(Bool.self, loop.perform(inModes: [.default]) { trace.add("core") })
            isExactly(Bool.self, loop.perform(inModes: [.default], block: { trace.add("overlay") }))
            isExactly(Bool.self, loop.perform { trace.add("plain") })
            trace.add("\(loop.run(until: .distantFuture, returnAfterSourceHandled: true))")
            return trace.description
        }
        #expect(trace == "core overlay plain handledSource")
    }

    @Test func `the tolerance is the core's or the overlay's by the type that is wanted, and the core's when either would do`() {
        let timer = RunLoop.Timer(every: .seconds(10)) { _ in }
        timer.tolerance = 0.5
        let inferred = timer.tolerance
        #expect(isExactly(Duration.self, inferred) == .milliseconds(500))
        timer.tolerance = .seconds(2)
        let seconds: TimeInterval = timer.tolerance
        #expect(seconds == 2)
        timer.tolerance += 0.5
        timer.tolerance += .seconds(1)
        // #expect takes an expression apart, so that neither side tells the other its type: it has to be said.
        #expect(timer.tolerance as TimeInterval == 3.5)
        let isSame = timer.tolerance == 3.5
        #expect(isSame)
        #expect(timer.tolerance as Duration == .milliseconds(3500))
        let tenth: TimeInterval = timer.timeInterval / 10
        timer.tolerance = tenth
        let isMore = timer.tolerance * 2 > 1.5
        #expect(isMore)
        let path = \RunLoop.Timer.tolerance
        #expect(isExactly(Duration.self, timer[keyPath: path]) == .seconds(1))
    }

    @Test func `a bare Timer is the loop's`() {
        let timer = Timer(timeInterval: 1, repeats: false) { _ in }
        #expect(isExactly(RunLoop.Timer.self, timer).isValid)
    }
}
