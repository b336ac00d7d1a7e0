// Priorities (API: RunLoop.Priority; semantics 4.1; decision 6):
//  - A pass serves the most urgent level that is ready, then polls the kernel again before it serves a lower level.
//  - A run that returns after a source serves the most urgent one.
//  - Lower levels keep their events, and are served when no urgent descriptor is ready.
//  - A descriptor that is always ready at an urgent level starves descriptors of lower levels, but no timer, no stop and no limit.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct DescriptorPriorityTests {
    @Test func `priorities compare by urgency, with high first`() {
        #expect([RunLoop.Priority.low, .high, .default].sorted() == [.high, .default, .low])
    }

    @Test func `a source reports its priority`() throws {
        let pipe = Pipe()
        let read = try [RunLoop.Priority.high, .default, .low].map { try readSource(pipe, priority: $0) { _ in }.priority }
        #expect(read == [.high, .default, .low])
    }

    @Test func `a pass serves the most urgent level that is ready, and later passes the lower ones`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            for (name, priority) in [("low", RunLoop.Priority.low), ("default", .default), ("high", .high), ("low", .low), ("high", .high)]
            {
                try addReadySource(to: loop, priority: priority) { trace.add(name) }
            }
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S high high T S default T S low low T S W A X -> timedOut")
    }

    @Test func `an urgent descriptor that becomes ready later is served before a lower one that was ready earlier`() throws {
        let trace = try inManualTime { loop, _, trace in
            let (high, middle, low) = (Pipe(), Pipe(), Pipe())
            loop.add(
                try readSource(low, priority: .low) { _ in
                    low.readAll()
                    trace.add("low")
                })
            loop.add(
                try readSource(middle) { _ in
                    middle.readAll()
                    trace.add("default")
                    high.write()
                })
            loop.add(
                try readSource(high, priority: .high) { _ in
                    high.readAll()
                    trace.add("high")
                })
            low.write()
            middle.write()
            _ = loop.run(until: .ms(50))
            return trace.description
        }
        #expect(trace == "default high low")
    }

    @Test func `a run that returns after a source serves the most urgent one`() throws {
        let trace = try inManualTime { loop, _, trace in
            for (name, priority) in [("low", RunLoop.Priority.low), ("default", .default), ("high", .high)] {
                try addReadySource(to: loop, priority: priority) { trace.add(name) }
            }
            for _ in 0..<4 { trace.add("\(loop.run(for: .milliseconds(1), returnAfterSourceHandled: true))") }
            return trace.description
        }
        #expect(trace == "high handledSource default handledSource low handledSource timedOut")
    }

    @Test func `a lower edge-triggered source that had to wait is called once, when the urgent one is no longer ready`() throws {
        let trace = try inManualTime { loop, _, trace in
            let (high, low) = (Pipe(), Pipe())
            let calls = Box(0)
            loop.add(
                try readSource(high, priority: .high) { _ in
                    trace.add("high")
                    if calls.increment() == 3 { high.readAll() }
                })
            loop.add(try readSource(low, trigger: .edge, priority: .low) { _ in trace.add("low") })
            high.write()
            low.write()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return withExtendedLifetime(low) { trace.description }
        }
        #expect(trace == "high high high low -> timedOut")
    }

    @Test func `leftover sources of a lower level wait for an urgent descriptor that has become ready since`() throws {
        let trace = try inManualTime { loop, _, trace in
            let high = Pipe()
            loop.add(
                try readSource(high, priority: .high) { _ in
                    high.readAll()
                    trace.add("high")
                })
            for _ in 0..<2 {
                let low = Pipe()
                low.write()
                loop.add(try readSource(low, trigger: .edge, priority: .low) { _ in trace.add("low") })
            }
            trace.add("\(loop.run(until: .ms(10), returnAfterSourceHandled: true));")
            high.write()
            trace.observe(loop)
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "low handledSource; E T S high T S low T S W A X -> timedOut")
    }

    @Test func `an urgent descriptor that is always ready delays lower ones until it is drained`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let (high, low) = (Pipe(), Pipe())
            let calls = Box(0)
            loop.add(
                try readSource(high, priority: .high) { _ in
                    trace.add("high")
                    if calls.increment() == 4 { high.readAll() }
                })
            loop.add(try readSource(low, priority: .low) { _ in trace.add("low:\(low.readAll())") })
            high.write()
            low.write()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S high T S high T S high T S high T S low:x T S W A X -> timedOut")
    }

    /// An urgent descriptor that is always ready, and a lower one that is also ready.
    private static func addBusySource(_ loop: RunLoop, _ call: @escaping @Sendable () -> Void) throws {
        let (high, low) = (Pipe(), Pipe())
        high.write()
        low.write()
        loop.add(try readSource(low, priority: .low) { _ in })
        loop.add(try readSource(high, priority: .high) { _ in call() })
    }

    @Test func `with an urgent descriptor that is always ready, a poll is still one pass`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            try Self.addBusySource(loop) { trace.add("high") }
            trace.add("-> \(loop.run(for: .zero))")
            return trace.description
        }
        #expect(trace == "E T S high X -> timedOut")
    }

    @Test func `with an urgent descriptor that is always ready, a run ends at its limit`() throws {
        let (result, calls, end) = try inManualTime { loop, clock, _ in
            let calls = Box(0)
            try Self.addBusySource(loop) {
                calls.increment()
                clock.advance(by: .milliseconds(1))
            }
            let result = loop.run(until: .ms(10))
            return (result, calls.value, clock.ms)
        }
        #expect(result == .timedOut)
        #expect((10...11).contains(calls))
        #expect(end == Int64(calls))
    }

    @Test func `with an urgent descriptor that is always ready, a stop from another thread ends the run`() throws {
        let result = try onFreshThread { loop in
            let calls = Box(0)
            try Self.addBusySource(loop) { calls.increment() }
            let other = plainThread {
                try waitUntil { calls.value > 10 }
                loop.stop()
            }
            let result = loop.run(for: patience)
            try other.join()
            return result
        }
        #expect(result == .stopped)
    }

    @Test func `with an urgent descriptor that is always ready, timers, performs and custom sources are still served`() throws {
        let trace = try inManualTime { loop, clock, trace in
            try Self.addBusySource(loop) { clock.advance(by: .milliseconds(1)) }
            let source = RunLoop.CustomSource(perform: { trace.add("custom") })
            loop.add(source)
            loop.add(
                RunLoop.Timer(fireAt: .ms(3)) { _ in
                    trace.add("timer")
                    source.signal()
                })
            loop.add(
                RunLoop.Timer(fireAt: .ms(6)) { _ in
                    trace.add("timer")
                    loop.perform { trace.add("perform") }
                })
            trace.add("-> \(loop.run(until: .ms(20)))")
            return trace.description
        }
        #expect(trace == "timer custom timer perform -> timedOut")
    }
}
