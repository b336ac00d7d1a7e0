// C events and the loop's own sources in one wait (semantics 12; decisions 6 and 8):
//  - A C event that is always ready, at any of libevent's priorities, starves no source of the loop, and no source starves a C event.
//  - A poll ends even if C events of two priorities are always ready.
//  - A C event that activates itself in its own callback does not prevent the wait from ending.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct GuestFairnessTests {
    /// An event on the default mode's base that is always ready.
    private static func addBusyEvent(_ loop: RunLoop, priority: Int32, _ body: @escaping (ForeignEvent) -> Void) -> (ForeignEvent, Pipe) {
        let pipe = Pipe()
        pipe.write()
        let event = loop.withEventBase { ForeignEvent($0, pipe.readEnd, EV_READ | EV_PERSIST, priority: priority, body) }
        event.add()
        return (event, pipe)
    }

    @Test(arguments: [RunLoop.Priority.high, .default, .low], [Int32(0), 1, 2])
    func `neither an always-ready source nor an always-ready C event starves the other`(
        priority: RunLoop.Priority, eventPriority: Int32
    ) throws {
        let (ours, theirs) = try onFreshThread { loop in
            let (ours, theirs) = (Box(0), Box(0))
            let pipe = Pipe()
            pipe.write()
            loop.add(
                try readSource(pipe, priority: priority) { _ in
                    if ours.increment() == 20 { loop.stop() }
                })
            let (event, busy) = Self.addBusyEvent(loop, priority: eventPriority) { _ in
                // Keeps pace with the source's handler, which runs after the wait.
                if theirs.increment() > 20 * (ours.value + 2) { loop.stop() }
            }
            _ = loop.run(for: patience)
            event.free()
            return withExtendedLifetime(busy) { (ours.value, theirs.value) }
        }
        #expect(ours == 20)
        #expect((20...100).contains(theirs), "\(theirs)")
    }

    @Test func `a C event of low priority is called even if every pass has a wake-up`() throws {
        let calls = try onFreshThread { loop in
            let calls = Box(0)
            let passes = Box(0)
            loop.add(
                RunLoop.Observer(activities: .beforeTimers) { _, _ in
                    loop.wakeUp()
                    if passes.increment() == 50 { loop.stop() }
                })
            let (event, busy) = Self.addBusyEvent(loop, priority: 2) { _ in calls.increment() }
            _ = loop.run(for: patience)
            event.free()
            return withExtendedLifetime(busy) { calls.value }
        }
        #expect(calls >= 40)
    }

    @Test func `a poll ends even if C events of two priorities are always ready`() throws {
        let (result, calls) = try onFreshThread { loop in
            let calls = Box([0, 0])
            let (first, firstPipe) = Self.addBusyEvent(loop, priority: 0) { event in
                if calls.change({ calls in
                    calls[0] += 1; return calls[0]
                }) == 1_000 {
                    event_base_loopbreak(event.base)
                }
            }
            let (second, secondPipe) = Self.addBusyEvent(loop, priority: 1) { _ in calls.change { $0[1] += 1 } }
            let result = loop.run(for: .zero)
            first.free()
            second.free()
            return withExtendedLifetime((firstPipe, secondPipe)) { (result, calls.value) }
        }
        #expect(result == .timedOut)
        #expect(calls[0] <= 4, "\(calls)")
    }

    @Test(arguments: [Int32(0), 1, 2])
    func `a C event that activates itself in its callback does not prevent a stop from ending the run`(priority: Int32) throws {
        let (result, calls) = try onFreshThread { loop in
            let calls = Box(0)
            let isOver = Box(false)
            let event = loop.withEventBase { base in
                ForeignEvent(base, priority: priority) { event in
                    if calls.increment() == 1 { loop.stop() }
                    if !isOver.value { event.activate() }
                }
            }
            event.activate()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let result = loop.run(for: patience)
            isOver.value = true
            event.free()
            return (result, calls.value)
        }
        #expect(result == .stopped)
        // Two of libevent's rounds, which EventBase bounds.
        #expect(calls <= 4 << 20, "\(calls)")
    }

    @Test func `a timer and a perform that a C event's callback adds end the wait`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let calls = Box(0)
            let (first, firstPipe) = Self.addBusyEvent(loop, priority: 0) { event in
                let count = calls.increment()
                if count == 1 { loop.add(RunLoop.Timer(fireAt: .distantPast) { _ in trace.add("timer") }) }
                if count == 20 {
                    loop.perform {
                        trace.add("perform"); loop.stop()
                    }
                }
                if count == 1_000 { loop.stop(); event_base_loopbreak(event.base) }
            }
            let (second, secondPipe) = Self.addBusyEvent(loop, priority: 2) { _ in }
            trace.add("\(loop.run(for: patience)) \(calls.value < 100)")
            first.free()
            second.free()
            return withExtendedLifetime((firstPipe, secondPipe)) { trace.description }
        }
        #expect(trace == "timer perform stopped true")
    }
}
