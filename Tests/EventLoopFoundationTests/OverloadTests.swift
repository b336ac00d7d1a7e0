// Rules proved here: with both modules imported,
// - a call that fits the core resolves to the core (the types prove it when this file is compiled, the results when it runs);
// - a call with a Date or with seconds resolves to the overlay;
// - Date and TimeInterval are available without an import of Foundation, and this file has none.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport
import Testing

/// Compiles only if `Value` is exactly the type of `value`.
@discardableResult
private func isExactly<Value>(_ type: Value.Type, _ value: Value) -> Value { value }

@Suite struct OverloadTests {
    @Test func `a run until an unqualified distant future resolves to the core, and ends with a stop`() throws {
        let results = try inManualTime { loop, _, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.perform { loop.stop() }
            let inferred = loop.run(until: .distantFuture)
            return isExactly(RunLoop.RunResult.self, inferred)
        }
        #expect(results == .stopped)
    }

    @Test func `runs until an unqualified now, with and without a mode, resolve to the core`() throws {
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

    @Test func `a run until a Date resolves to the overlay, however the Date is written`() throws {
        try inManualTime { loop, clock, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let date = Date(timeIntervalSinceNow: 3600)
            isExactly(Void.self, loop.run(until: date))
            isExactly(Void.self, loop.run(until: .init(timeIntervalSinceNow: 3600)))
            isExactly(Void.self, loop.run(until: Date.now.addingTimeInterval(3600)))
            isExactly(Void.self, loop.run(until: Date.now))
            // None of the calls resolved to the core, for which all dates would be the same instant.
            #expect(clock.ms > 3 * 3_600_000 - 5_000 && clock.ms <= 3 * 3_600_000)
        }
    }

    @Test func `the label before belongs to the overlay, so its distant future is a Date`() throws {
        let isRun = try inManualTime { loop, _, _ in
            loop.perform {}
            return isExactly(Bool.self, loop.run(mode: .default, before: .distantFuture))
        }
        #expect(isRun)
    }

    @Test func `the loop's run without arguments resolves to the core`() throws {
        let result = try inManualTime { loop, _, _ in
            let result = loop.run()
            return isExactly(RunLoop.RunResult.self, result)
        }
        #expect(result == .finished)
    }

    @Test func `a trailing-closure perform resolves to the core, one with Foundation's label to the overlay; both do the same`() throws {
        let trace = try inManualTime { loop, _, trace in
            isExactly(Bool.self, loop.perform(inModes: [.default]) { trace.add("core") })
            isExactly(Bool.self, loop.perform(inModes: [.default], block: { trace.add("overlay") }))
            isExactly(Bool.self, loop.perform { trace.add("plain") })
            trace.add("\(loop.run(until: .distantFuture, returnAfterSourceHandled: true))")
            return trace.description
        }
        #expect(trace == "core overlay plain handledSource")
    }

    @Test func `the tolerance resolves by the expected type, and to the core if both types fit`() {
        let timer = RunLoop.Timer(every: .seconds(10)) { _ in }
        timer.tolerance = 0.5
        let inferred = timer.tolerance
        #expect(isExactly(Duration.self, inferred) == .milliseconds(500))
        timer.tolerance = .seconds(2)
        let seconds: TimeInterval = timer.tolerance
        #expect(seconds == 2)
        timer.tolerance += 0.5
        timer.tolerance += .seconds(1)
        // #expect takes an expression apart, so the compiler cannot infer one side's type from the other. The type must be explicit.
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

    @Test func `an unqualified Timer is the loop's Timer`() {
        let timer = Timer(timeInterval: 1, repeats: false) { _ in }
        #expect(isExactly(RunLoop.Timer.self, timer).isValid)
    }
}
