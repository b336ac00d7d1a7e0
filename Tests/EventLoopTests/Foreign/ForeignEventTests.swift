// C code on a mode's libevent base (API: withEventBase; decision 8; semantics 12):
//  - The loop serves its events while the mode runs. They keep the mode from being empty, and count as handled sources.
//  - libevent calls it inside the wait, before afterWaiting, but isWaiting is false during the call.
//  - A nested run of another mode works in its callback, and the outer wait, which ends then, misses nothing. A nested run of the same mode traps
//    with a message instead of hanging.
//  - Each mode has one base, which is the same at every call. Callers must be on the owning thread and name one mode other than `.common`.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded, .tags(.memory, .threads)) struct ForeignEventTests {
    /// An event that watches `pipe` on the base of `mode`.
    private static func watch(
        _ pipe: Pipe, on loop: RunLoop, mode: RunLoop.Mode = .default, _ body: @escaping (ForeignEvent) -> Void
    ) -> ForeignEvent {
        loop.withEventBase(forMode: mode) { base in
            let event = ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST, body)
            event.add()
            return event
        }
    }

    /// A wait of libevent that only an event of the loop ends: nobody reads the pipe, and libevent goes on with two events of different priorities
    /// in one wait. The third event, which the caller adds, begins it.
    private static func endlessWait(_ pipe: Pipe, on loop: RunLoop, _ body: @escaping () -> Void) -> [ForeignEvent] {
        loop.withEventBase { base in
            let urgent = ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST, priority: 0) { _ in body() }
            let other = ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST, priority: 2) { _ in }
            for event in [urgent, other] { event.add() }
            // Both become ready in the wait, not in the poll before it.
            let timeout = ForeignEvent(base) { _ in
                pipe.write()
                urgent.activate()
            }
            return [urgent, other, timeout]
        }
    }

    // MARK: The base

    @Test func `each mode has a base of its own, the same at every call`() throws {
        let outcome = try onFreshThread { loop in
            let first = loop.withEventBase { $0 }
            let other = loop.withEventBase(forMode: "other") { $0 }
            _ = loop.run(for: .zero)
            return "\(first == loop.withEventBase { $0 }) \(other == loop.withEventBase(forMode: "other") { $0 }) \(first != other)"
        }
        #expect(outcome == "true true true")
    }

    @Test func `withEventBase returns the value of its body and rethrows its error`() throws {
        struct Refused: Error, Equatable {}
        let outcome = try onFreshThread { loop in
            let value = loop.withEventBase { _ in 42 }
            do {
                try loop.withEventBase { _ in throw Refused() }
                return "nothing thrown"
            } catch {
                return "\(value) \(error)"
            }
        }
        #expect(outcome == "42 Refused()")
    }

    @Test func `a request for the base of the common modes, or from another thread, traps with a message`() async throws {
        let common = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in loop.withEventBase(forMode: .common) { _ in } }
        }
        #expect(String(decoding: try #require(common).standardErrorContent, as: UTF8.self).contains("mode"))
        let elsewhere = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in try plainThread { loop.withEventBase { _ in } }.join() }
        }
        #expect(String(decoding: try #require(elsewhere).standardErrorContent, as: UTF8.self).contains("thread"))
    }

    @Test func `a request for the base of a loop that has ended traps and says so, on whatever thread`() async throws {
        let elsewhere = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let ended = try onFreshThread { loop in loop }
            try onFreshThread { _ in ended.withEventBase { _ in } }
        }
        #expect(String(decoding: try #require(elsewhere).standardErrorContent, as: UTF8.self).contains("run loop that has ended"))
    }

    // MARK: Serving events

    @Test func `libevent calls a foreign event inside the wait, before afterWaiting, and isWaiting is false during the call`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let written = Box(false)
            trace.observe(loop) { activity in
                guard activity == .beforeWaiting, !written.value else { return }
                written.value = true
                pipe.write("ab")  // after step 5 has looked
            }
            let event = Self.watch(pipe, on: loop) { _ in trace.add("foreign:\(pipe.readAll()):waiting \(loop.isWaiting)") }
            trace.add("-> \(loop.run(until: .ms(50)))")
            event.free()
            return trace.description
        }
        #expect(trace == "E T S W foreign:ab:waiting false A T S W A X -> timedOut")
    }

    @Test func `a foreign event ends an actual wait`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let pipe = Pipe()
            let event = Self.watch(pipe, on: loop) { _ in
                trace.add("foreign:\(pipe.readAll())")
                loop.stop()
            }
            let other = plainThread {
                try waitUntilAsleep(loop)
                pipe.write("ab")
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            event.free()
            return trace.description
        }
        #expect(trace == "foreign:ab -> stopped")
    }

    @Test func `a foreign event is called on the loop's thread, in its mode, whether it was added before or after the first run`() throws {
        let trace = try inManualTime { loop, _, trace in
            let (early, late) = (Pipe(), Pipe())
            let first = Self.watch(early, on: loop) { _ in trace.add("early:\(early.readAll()):\(loop.isCurrent):\(loop.currentMode!)") }
            early.write()
            _ = loop.run(for: .zero)
            let second = Self.watch(late, on: loop) { _ in trace.add("late:\(late.readAll()):\(loop.isCurrent):\(loop.currentMode!)") }
            late.write()
            _ = loop.run(for: .zero)
            first.free()
            second.free()
            return trace.description
        }
        #expect(trace == "early:x:true:default late:x:true:default")
    }

    @Test func `a foreign event waits while other modes run`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let event = Self.watch(pipe, on: loop) { _ in trace.add("foreign:\(pipe.readAll())") }
            pipe.write()
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            trace.add("other \(loop.run(mode: "other", until: .ms(10)));")
            _ = loop.run(until: .ms(20))
            event.free()
            return trace.description
        }
        #expect(trace == "other timedOut; foreign:x")
    }

    // libevent's own loop ends only when no event is added *and* no callback is active.
    @Test func `an event that is active but was never added is called, and its mode is empty afterwards`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let event = loop.withEventBase { base in ForeignEvent(base) { _ in trace.add("called") } }
            defer { event.free() }
            event.activate()
            trace.add("-> \(loop.run(for: patience))")
            trace.add("-> \(loop.run(for: patience))")
            return trace.description
        }
        #expect(trace == "called -> finished -> finished")
    }

    @Test func `a foreign event keeps its mode from being empty until it is removed`() throws {
        let results = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            let event = Self.watch(pipe, on: loop) { _ in }
            let with = loop.run(until: .ms(10))
            event.remove()
            let without = loop.run(until: .ms(20))
            event.add()
            let again = loop.run(until: .ms(30))
            event.free()
            return [with, without, again, loop.run(until: .ms(40))]
        }
        #expect(results == [.timedOut, .finished, .timedOut, .finished])
    }

    @Test func `the run finishes when the last foreign event removes itself`() throws {
        let result = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            pipe.write()
            let event = Self.watch(pipe, on: loop) { event in event.free() }
            defer { withExtendedLifetime(event) {} }
            return loop.run(until: .ms(50))
        }
        #expect(result == .finished)
    }

    @Test func `a foreign event counts as a handled source`() throws {
        let (result, handled) = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            pipe.write()
            let event = Self.watch(pipe, on: loop) { _ in pipe.readAll() }
            let result = loop.run(until: .ms(50), returnAfterSourceHandled: true)
            event.free()
            return (result, loop.statistics.sourcesHandled)
        }
        #expect(result == .handledSource)
        #expect(handled == 1)
    }

    @Test func `a foreign timer is served, and counts as a handled source`() throws {
        let (result, calls) = try onFreshThread { loop in
            let calls = Box(0)
            let event = loop.withEventBase { base in ForeignEvent(base) { _ in calls.increment() } }
            event.add(milliseconds: 10)
            let result = loop.run(for: patience, returnAfterSourceHandled: true)
            event.free()
            return (result, calls.value)
        }
        #expect(result == .handledSource)
        #expect(calls == 1)
    }

    @Test func `a foreign event and the loop's own source on one descriptor are both called`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let event = Self.watch(pipe, on: loop) { _ in trace.add("foreign") }
            loop.add(try readSource(pipe) { _ in trace.add("own") })
            pipe.write()
            _ = loop.run(for: .zero)
            event.free()
            return trace.list.sorted()
        }
        #expect(trace == ["foreign", "own"])
    }

    @Test func `changes that a foreign callback makes to the loop take effect in the same run`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let pipe = Pipe()
            pipe.write()
            let event = Self.watch(pipe, on: loop) { _ in
                pipe.readAll()
                trace.add("foreign")
                loop.perform { trace.add("perform") }
                loop.add(
                    RunLoop.Timer(fireAt: .ms(5)) { _ in
                        trace.add("timer@\(clock.ms)")
                        loop.stop()
                    })
            }
            trace.add("-> \(loop.run(until: .ms(50)))")
            event.free()
            return trace.description
        }
        #expect(trace == "foreign perform timer@5 -> stopped")
    }

    @Test func `a ready source that a foreign callback invalidates is not called`() throws {
        let trace = try inManualTime { loop, _, trace in
            let (foreign, own) = (Pipe(), Pipe())
            let source = try readSource(own) { _ in trace.add("own") }
            let event = Self.watch(foreign, on: loop) { _ in
                foreign.readAll()
                source.invalidate()
                trace.add("foreign")
            }
            loop.add(source)
            own.write()
            foreign.write()
            _ = loop.run(for: .zero)
            event.free()
            return trace.description
        }
        #expect(trace == "foreign")
    }

    @Test func `a run in a thread's teardown calls what a C library has left for libevent's next wait`() throws {
        let calls = Box(0)
        let thread = try RunLoopThread(
            name: "library",
            teardown: { loop in
                // As `bufferevent_free` and `evdns_base_free` do.
                let event = loop.withEventBase { ForeignEvent($0) { _ in calls.increment() } }
                event.activate()
                _ = loop.run(for: .zero)
                event.free()
            })
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(calls.value == 1)
    }

    // MARK: Nested runs

    @Test func `a nested run of another mode works in a foreign callback`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let (pipe, inner) = (Pipe(), Pipe())
            loop.add(RunLoop.Timer(fireAt: .ms(5)) { _ in trace.add("timer@\(clock.ms)") }, forMode: "other")
            loop.add(try readSource(inner) { _ in trace.add("read:\(inner.readAll())") }, forMode: "other")
            let event = Self.watch(pipe, on: loop) { _ in
                pipe.readAll()
                trace.add("[")
                trace.add("\(loop.run(mode: "other", for: .milliseconds(10))) ]")
            }
            pipe.write()
            inner.write()
            trace.add("-> \(loop.run(until: .ms(50))) @\(clock.ms)")
            event.free()
            return trace.description
        }
        #expect(trace == "[ read:x timer@5 timedOut ] -> timedOut @50")
    }

    @Test func `a wake-up ends a wait that goes on after a nested run in a foreign callback`() throws {
        let calls = try onFreshThread { loop in
            let (pipe, calls, callsBeforePerform) = (Pipe(), Box(0), Box(0))
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            let events = Self.endlessWait(pipe, on: loop) {
                switch calls.increment() {
                case 1: _ = loop.run(mode: "other", for: .milliseconds(1))
                case 3:
                    #expect(throws: Never.self) {
                        try plainThread {
                            loop.perform {
                                callsBeforePerform.value = calls.value
                                loop.stop()
                            }
                        }.join()
                    }
                case 1_000: pipe.readAll()  // the wake-up was lost
                default: break
                }
            }
            events[2].add(milliseconds: 20)
            #expect(loop.run(for: patience) == .stopped)
            for event in events { event.free() }
            return callsBeforePerform.value
        }
        #expect((3...16).contains(calls), "\(calls)")
    }

    @Test func `a date that a foreign callback sets ends a wait that goes on`() throws {
        let calls = try onFreshThread { loop in
            let (pipe, calls, callsBeforeTimer) = (Pipe(), Box(0), Box(0))
            let timer = RunLoop.Timer.onDemand { _ in
                callsBeforeTimer.value = calls.value
                loop.stop()
            }
            loop.add(timer)
            // As above, only an event of the loop ends the wait.
            let urgent = loop.withEventBase { base in
                ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST, priority: 0) { _ in
                    switch calls.increment() {
                    case 3: timer.nextFire = .now
                    case 1_000: pipe.readAll()  // the date did not end it
                    default: break
                    }
                }
            }
            let other = loop.withEventBase { ForeignEvent($0, pipe.readEnd, EV_READ | EV_PERSIST, priority: 2) { _ in } }
            let timeout = loop.withEventBase { base in
                ForeignEvent(base) { _ in
                    pipe.write()
                    urgent.activate()
                }
            }
            for event in [urgent, other] { event.add() }
            timeout.add(milliseconds: 20)
            #expect(loop.run(for: patience) == .stopped)
            for event in [urgent, other, timeout] { event.free() }
            return callsBeforeTimer.value
        }
        #expect((3...16).contains(calls), "\(calls)")
    }

    @Test func `a foreign callback that makes the running mode a common one ends a wait that goes on`() throws {
        let calls = try onFreshThread { loop in
            let mode = RunLoop.Mode("becomes common")
            let (pipe, calls, callsBefore) = (Pipe(), Box(0), Box(0))
            loop.perform {
                callsBefore.value = calls.value
                loop.stop()
            }
            // As above, only an event of the loop ends the wait.
            let urgent = loop.withEventBase(forMode: mode) { base in
                ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST, priority: 0) { _ in
                    switch calls.increment() {
                    case 3: loop.addCommonMode(mode)
                    case 1_000: pipe.readAll()  // it did not end it
                    default: break
                    }
                }
            }
            let other = loop.withEventBase(forMode: mode) { ForeignEvent($0, pipe.readEnd, EV_READ | EV_PERSIST, priority: 2) { _ in } }
            let timeout = loop.withEventBase(forMode: mode) { base in
                ForeignEvent(base) { _ in
                    pipe.write()
                    urgent.activate()
                }
            }
            for event in [urgent, other] { event.add() }
            timeout.add(milliseconds: 20)
            let alive = loop.keepAlive(forMode: mode)
            defer { alive.cancel() }
            #expect(loop.run(mode: mode, for: patience) == .stopped)
            for event in [urgent, other, timeout] { event.free() }
            return callsBefore.value
        }
        #expect((3...16).contains(calls), "\(calls)")
    }

    #if os(Linux)
    @Test func `a nested run in a foreign callback ends the wait, also if a handler of the outer run has made a step before`() throws {
        let calls = try onFreshThread { loop in
            let (pipe, calls, callsBeforePerform) = (Pipe(), Box(0), Box(0))
            let host = try PlainHost(loop, mode: "hosted")
            loop.addIdleSource(forMode: "hosted")
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            // The nested run calls it. The loop works then, so nobody writes to its channel.
            let queuesStop = RunLoop.Timer(fireAt: .distantPast) { _ in
                loop.perform(inModes: [.default]) {
                    callsBeforePerform.value = calls.value
                    loop.stop()
                }
            }
            loop.add(queuesStop, forMode: "other")
            let events = Self.endlessWait(pipe, on: loop) {
                switch calls.increment() {
                case 1: _ = loop.run(mode: "other", for: .milliseconds(1))
                case 1_000: pipe.readAll()  // the wait was not ended
                default: break
                }
            }
            loop.perform(inModes: [.default]) {
                host.step()
                events[2].add(milliseconds: 20)
            }
            #expect(loop.run(for: patience) == .stopped)
            for event in events { event.free() }
            host.hosted.invalidate()
            return callsBeforePerform.value
        }
        #expect((1...16).contains(calls), "\(calls)")
    }
    #endif

    @Test func `a host that steps the loop in a foreign callback becomes quiet`() throws {
        let steps = try onFreshThread { loop in
            let host = try PlainHost(loop, mode: "hosted")
            loop.addIdleSource(forMode: "hosted")
            let steps = Box(0)
            // libevent calls it in the loop's sleep.
            let timeout = loop.withEventBase { base in
                ForeignEvent(base) { _ in
                    host.step()
                    while host.isReady && steps.increment() < 1_000 { host.step() }
                    loop.stop()
                }
            }
            timeout.add(milliseconds: 20)
            let alive = loop.keepAlive(forMode: .default)
            defer { alive.cancel() }
            #expect(loop.run(for: patience) == .stopped)
            timeout.free()
            host.hosted.invalidate()
            return steps.value
        }
        #expect(steps <= 2)
    }

    @Test func `in a nested run in a foreign callback the loop works, and the sleep before it counts as sleep`() throws {
        func sleep(_ milliseconds: Int) throws -> (isWaiting: Bool?, slept: Duration) {
            try onFreshThread { loop in
                let isWaiting = Box<Bool?>(nil)
                let alive = loop.keepAlive(forMode: "other")
                defer { alive.cancel() }
                let timeout = loop.withEventBase { base in
                    ForeignEvent(base) { _ in
                        loop.perform(inModes: ["other"]) {
                            #expect(throws: Never.self) { isWaiting.value = try plainThread { loop.isWaiting }.join() }
                        }
                        _ = loop.run(mode: "other", for: .milliseconds(1))
                    }
                }
                timeout.add(milliseconds: milliseconds)
                #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
                timeout.free()
                return (isWaiting.value, loop.statistics.timeWaiting)
            }
        }
        var outcome = try sleep(100)
        // On a busy machine the loop may go to sleep late. Then the test retries with a later timeout.
        for milliseconds in [1_000, 10_000] where outcome.slept < .milliseconds(20) { outcome = try sleep(milliseconds) }
        #expect(outcome.isWaiting == false)
        #expect(outcome.slept >= .milliseconds(20))
    }

    @Test func `a nested run of the same mode in a foreign callback traps with a message`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in
                let pipe = Pipe()
                pipe.write()
                let event = loop.withEventBase { base in
                    ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST) { _ in _ = loop.run(for: .zero) }
                }
                event.add()
                _ = loop.run(for: patience)
            }
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("libevent callback of the same mode"), "\(errors)")
    }
}
