// Bugs of runs that a review found. Each has one rule:
// - A loop carries out the changes that other threads queue while it ends, and makes the last callouts.
// - If a perform is queued for several modes, a nested run in another of them performs it.
// - A nested run in a `beforeWaiting` observer does not consume a wake-up meant for the outer run.
// - A sticky stop in the exit observer of a nested run stops the outer run, and only that run.
// - The handler for libevent's messages receives them until it is removed.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct RunRegressionTests {
    @Test func `changes queued while the loop ends are carried out`() throws {
        let trace = Trace()
        let (ready, go, ending, queued) = (Gate(), Gate(), Gate(), Gate())
        let first = try readSource(Pipe()) { _ in }
        let second = try readSource(Pipe()) { _ in }
        first.onInvalidation {
            trace.add("first")
            ending.open()
            queued.wait()
        }
        second.onInvalidation { trace.add("second") }
        let thread = joinableThread { loop in
            loop.add(first)
            loop.add(second)
            _ = loop.run(for: .zero)
            ready.open()
            go.wait()
        }
        ready.wait()
        first.invalidate()
        go.open()
        ending.wait()
        second.invalidate()
        queued.open()
        try thread.join()
        #expect(trace.description == "first second")
    }

    @Test func `a nested run carries out a perform that was queued for its mode and others`() throws {
        let trace = try inManualTime { loop, _, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.perform(inModes: [.default, "modal"]) {
                trace.add("first")
                let result = loop.run(mode: "modal", for: .milliseconds(100), returnAfterSourceHandled: true)
                trace.add("\(result)")
            }
            loop.perform(inModes: [.default, "modal"]) { trace.add("second") }
            _ = loop.run(for: .milliseconds(20))
            return trace.list
        }
        #expect(trace.prefix(2) == ["first", "second"])
        #expect(trace.count == 3)
    }

    @Test func `a nested run in a beforeWaiting observer does not consume the outer run's wake-up`() throws {
        let waits = try inManualTime { loop, _, _ in
            let waits = Box(0)
            let once = Once()
            let alive = [loop.keepAlive(), loop.keepAlive(forMode: "nested")]
            defer { alive.forEach { $0.cancel() } }
            let observer = RunLoop.Observer(activities: .beforeWaiting) { _, _ in
                waits.increment()
                guard once.isFirst() else { return }
                loop.wakeUp()
                _ = loop.run(mode: "nested", for: .zero)
            }
            loop.add(observer)
            _ = loop.run(for: .milliseconds(50))
            return waits.value
        }
        #expect(waits == 2)
    }

    @Test func `a sticky stop in the exit observer of a nested run stops the outer run`() throws {
        let results = try inManualTime { loop, _, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.add(RunLoop.Observer(activities: .exit) { _, _ in if loop.runDepth == 2 { loop.stop(sticky: true) } })
            loop.perform { _ = loop.run(for: .milliseconds(1)) }
            return [loop.run(for: .milliseconds(100)), loop.run(for: .milliseconds(20))]
        }
        #expect(results == [.stopped, .timedOut])
    }

    @Test func `the handler for libevent's messages receives its warnings`() throws {
        let warnings = try inManualTime { loop, _, _ in
            let warnings = Box(0)
            /// libevent refuses one event for both a signal and a descriptor, and logs a warning.
            func provoke() {
                loop.withEventBase { base in
                    #expect(event_new(base, 1, Int16(EV_SIGNAL | EV_READ), { _, _, _ in }, nil) == nil)
                }
            }
            provoke()
            RunLoop.setLibeventLogHandler { severity, message in
                if severity == .warning, message.contains("EV_SIGNAL") { warnings.increment() }
            }
            provoke()
            RunLoop.setLibeventLogHandler(nil)
            provoke()
            return warnings.value
        }
        #expect(warnings == 1)
    }
}
