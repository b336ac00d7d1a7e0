// The code of docs/timers.md, compiled and run.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct DocumentedTimers {
    @Test func `one timer fires once, one until it is invalidated, and one in the common modes`() throws {
        try inManualTime { _, _, trace in
            let isDone: @Sendable () -> Bool = { trace.list.filter { $0 == "asked" }.count == 2 }
            let removeOldFiles: @Sendable () -> Void = { trace.add("removed") }
            let print: @Sendable (String) -> Void = { trace.add($0) }

            let loop = RunLoop.current

            // Once, two seconds from now.
            RunLoop.Timer.scheduled(after: .seconds(2)) { _ in print("two seconds later") }

            // Every three seconds, until it is invalidated.
            RunLoop.Timer.scheduled(every: .seconds(3)) { timer in
                if isDone() { timer.invalidate() }
            }

            // Every minute, in the modes of your choice.
            let cleanUp = RunLoop.Timer(every: .seconds(60), label: "clean up") { _ in removeOldFiles() }
            loop.add(cleanUp, forMode: .common)

            #expect(loop.run(for: .seconds(61)) == .timedOut)
            #expect(trace.list == ["two seconds later", "removed"])

            cleanUp.nextFire = loop.clock.now + .seconds(5)  // then every minute from that date
            cleanUp.tolerance = .seconds(1)  // fires up to a second late, together with other timers
            cleanUp.invalidate()  // for good

            #expect(cleanUp.nextFire == .distantFuture)
        }
    }

    @Test func `a timer on demand fires when nothing has come for its time`() throws {
        try inManualTime { loop, clock, trace in
            let closeConnection: @Sendable () -> Void = { trace.add("closed@\(clock.ms)") }

            // A timer without a date.
            let silence = RunLoop.Timer.onDemand(label: "silence") { _ in closeConnection() }
            loop.add(silence)

            // Each time the peer sends something:
            silence.nextFire = loop.clock.now + .seconds(30)

            #expect(loop.run(for: .seconds(20)) == .timedOut)
            silence.nextFire = loop.clock.now + .seconds(30)
            #expect(loop.run(for: .seconds(100)) == .timedOut)
            #expect(trace.list == ["closed@50000"] && silence.isValid)
        }
    }

    @Test func `Listing 3-10: one timer is made with a date, and one is scheduled from now`() throws {
        try inManualTime { _, clock, trace in
            let first: @Sendable () -> Void = { trace.add("first@\(clock.ms)") }
            let second: @Sendable () -> Void = { trace.add("second@\(clock.ms)") }

            // Listing 3-10: after one second and then every tenth of a second, and every fifth of a second from now on.
            let loop = RunLoop.current
            let start = loop.clock.now + .seconds(1)
            loop.add(RunLoop.Timer(fireAt: start, interval: .milliseconds(100)) { _ in first() })
            RunLoop.Timer.scheduled(every: .milliseconds(200)) { _ in second() }

            #expect(loop.run(for: .milliseconds(1_250)) == .timedOut)
            #expect(trace.list.filter { $0.hasPrefix("first") } == ["first@1000", "first@1100", "first@1200"])
            #expect(trace.list.filter { $0.hasPrefix("second") }.count == 6)
        }
    }

    @Test func `Listing 3-11: a timer with every setting, in the common modes`() throws {
        try inManualTime { _, clock, trace in
            let measure: @Sendable () -> Void = { trace.add("\(clock.ms)") }

            // Listing 3-11: every setting that a timer has.
            let loop = RunLoop.current
            let timer = RunLoop.Timer(
                fireAt: loop.clock.now + .milliseconds(100), interval: .milliseconds(300), tolerance: .milliseconds(20), label: "measure"
            ) { _ in measure() }
            loop.add(timer, forMode: .common)

            #expect(loop.run(for: .milliseconds(750)) == .timedOut)
            #expect(trace.list.count == 3)
        }
    }
}
