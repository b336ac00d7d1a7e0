// Bugs of runs that a review found, one rule for each:
// - Changes that other threads queue while a loop ends are carried out: the last callouts are made.
// - A perform for several modes is performed by a nested run in another of its modes.
// - A wake-up meant for the outer run is not used up by a nested run in a `beforeWaiting` observer.
// - A sticky stop that reaches a nested run in its exit observer stops the outer run, and only that.
// - The handler for libevent's messages gets them, and none once it is taken away.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct RunRegressionTests {
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

    @Test func `a perform for several modes is performed by a nested run in another of them`() throws {
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

    @Test func `a wake-up is not used up by a nested run in a beforeWaiting observer`() throws {
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

    @Test func `the handler for libevent's messages gets its warnings`() throws {
        let warnings = try inManualTime { loop, _, _ in
            let warnings = Box(0)
            /// libevent refuses an event for a signal and a descriptor at once, and says so.
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
