// Fairness of step 9 (semantics 1.19):
//  - A pass serves one kind: all due timers, by date, or the ready descriptors. If both are ready, they alternate, so that neither a busy
//    descriptor starves timers nor a busy timer starves descriptors.
//  - Observers see the turns only as additional passes.
//  - A self-signaling custom source starves neither. A timer that comes due during a source's perform fires in the same pass.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct TurnTests {
    /// The entries of `trace` that are not observers' letters.
    private static func words(_ trace: Trace) -> [String] {
        trace.list.filter { !["E", "T", "S", "W", "A", "X"].contains($0) }
    }

    /// The entries of each pass.
    private static func passes(_ trace: Trace) -> [[String]] {
        trace.list.split(separator: "T", omittingEmptySubsequences: false).dropFirst().map { pass in
            pass.filter { !["E", "S", "W", "A", "X"].contains($0) }
        }
    }

    /// A descriptor that is always ready and a timer that is always due. The run is stopped after `count` calls in total.
    private static func busyBoth(_ count: Int) throws -> Trace {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let calls = Box(0)
            @Sendable func call(_ word: String) {
                trace.add(word)
                if calls.increment() == count { loop.stop() }
            }
            let pipe = Pipe()
            pipe.write()
            loop.add(try readSource(pipe) { _ in call("port") })
            loop.add(
                RunLoop.Timer(fireAt: .ms(0), interval: .seconds(1)) { timer in
                    call("timer")
                    timer.nextFire = clock.now
                })
            _ = loop.run(for: .seconds(1))
            return trace
        }
    }

    @Test func `a descriptor that is always ready and a timer that is always due alternate`() throws {
        let words = Self.words(try Self.busyBoth(20))
        #expect(words.count == 20)
        #expect(zip(words, words.dropFirst()).allSatisfy { $0 != $1 }, "\(words)")
    }

    @Test func `a pass serves one kind`() throws {
        let passes = Self.passes(try Self.busyBoth(20))
        #expect(passes.count == 20)
        #expect(passes.allSatisfy { $0.count == 1 }, "\(passes)")
    }

    @Test func `observers see the turns as passes and nothing else`() throws {
        // A ready descriptor keeps every pass from waiting, regardless of the turn.
        let letters = try Self.busyBoth(4).list.map { $0 == "port" || $0 == "timer" ? "." : $0 }.joined(separator: " ")
        #expect(letters == "E T S . T S . T S . T S . X")
    }

    @Test func `all due timers share one turn, and so do all ready descriptors`() throws {
        let turns = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            for _ in 0..<3 {
                try addReadySource(to: loop) { trace.add("port") }
            }
            for date in [3, 1, 2] { loop.add(RunLoop.Timer(fireAt: .ms(Int64(date))) { _ in trace.add("timer\(date)") }) }
            clock.advance(by: .milliseconds(10))
            _ = loop.run(until: .ms(50))
            return Self.passes(trace).filter { !$0.isEmpty }
        }
        #expect(turns.sorted { $0[0] < $1[0] } == [["port", "port", "port"], ["timer1", "timer2", "timer3"]])
    }

    @Test func `a descriptor that is always ready does not starve a timer`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let pipe = Pipe()
            pipe.write()
            loop.add(try readSource(pipe) { _ in clock.advance(by: .milliseconds(1)) })
            loop.add(RunLoop.Timer(fireAt: .ms(5), interval: .milliseconds(5)) { _ in trace.add("\(clock.ms)") })
            _ = loop.run(until: .ms(22))
            return trace.description
        }
        // The descriptor has had its turn when the timer comes due.
        #expect(trace == "5 10 15 20")
    }

    @Test func `a timer that is always due does not starve a descriptor`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let pipe = Pipe()
            loop.add(
                try readSource(pipe) { _ in
                    trace.add("port:\(pipe.readAll())")
                    loop.stop()
                })
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(0), interval: .seconds(1)) { timer in
                    timer.nextFire = clock.now
                    if calls.increment() == 5 { pipe.write() }
                    if calls.value == 8 { loop.stop() }
                })
            _ = loop.run(until: .ms(50))
            return "\(trace) after \(calls.value)"
        }
        #expect(trace == "port:x after 5")
    }

    @Test func `a run that returns after a source returns even if a timer is always due`() throws {
        let result = try inManualTime { loop, clock, _ in
            let pipe = Pipe()
            pipe.write()
            loop.add(try readSource(pipe) { _ in })
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(0), interval: .seconds(1)) { timer in
                    timer.nextFire = clock.now
                    if calls.increment() == 5 { loop.stop() }
                })
            return loop.run(until: .ms(50), returnAfterSourceHandled: true)
        }
        #expect(result == .handledSource)
    }

    @Test func `in runs of one pass each, both kinds get their turn`() throws {
        let words = try inManualTime { loop, clock, trace in
            let pipe = Pipe()
            pipe.write()
            loop.add(try readSource(pipe) { _ in trace.add("port") })
            loop.add(
                RunLoop.Timer(fireAt: .ms(0), interval: .seconds(1)) { timer in
                    trace.add("timer")
                    timer.nextFire = clock.now
                })
            for _ in 0..<10 { _ = loop.run(for: .zero) }
            return trace.list
        }
        #expect(words.count == 10)
        #expect(zip(words, words.dropFirst()).allSatisfy { $0 != $1 }, "\(words)")
    }

    // MARK: Custom sources

    @Test func `a timer that comes due during a custom source's perform fires in the same pass`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let source = RunLoop.CustomSource(perform: {
                trace.add("custom")
                clock.advance(by: .milliseconds(10))
            })
            loop.add(source)
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("timer@\(clock.ms)") })
            source.signal()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S custom timer@10 T S W A X -> timedOut")
    }

    @Test func `a self-signaling source starves neither timers nor descriptors`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let itself = Box<RunLoop.CustomSource?>(nil)
            let source = RunLoop.CustomSource(perform: {
                trace.add("custom")
                itself.value?.signal()
            })
            itself.value = source
            loop.add(source)
            let pipe = Pipe()
            pipe.write()
            loop.add(try readSource(pipe) { _ in trace.add("port") })
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(0), interval: .seconds(1)) { timer in
                    trace.add("timer")
                    timer.nextFire = clock.now
                    if calls.increment() == 5 { loop.stop() }
                })
            source.signal()
            _ = loop.run(until: .ms(50))
            itself.value = nil
            return Self.passes(trace).map { $0.joined(separator: " ") }
        }
        // Every pass performs the custom source, then gives one kind its turn.
        #expect(Set(trace) == ["custom port", "custom timer"])
        #expect(zip(trace, trace.dropFirst()).allSatisfy { $0 != $1 }, "\(trace)")
    }

    @Test func `after a handled custom source, a run that returns after a source still serves the due timers once`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let source = RunLoop.CustomSource(perform: { trace.add("custom") })
            loop.add(source)
            source.signal()
            loop.add(RunLoop.Timer(fireAt: .ms(0)) { _ in trace.add("timer1") })
            loop.add(RunLoop.Timer(fireAt: .ms(0)) { _ in trace.add("timer2") })
            trace.add("-> \(loop.run(until: .ms(50), returnAfterSourceHandled: true))")
            return trace.description
        }
        #expect(trace == "E T S custom timer1 timer2 X -> handledSource")
    }

    @Test func `after a handled custom source, a run that returns after a source still serves one descriptor`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let source = RunLoop.CustomSource(perform: { trace.add("custom") })
            loop.add(source)
            source.signal()
            for _ in 0..<2 {
                let pipe = Pipe()
                pipe.write()
                loop.add(try readSource(pipe) { _ in trace.add("port:\(pipe.readAll())") })
            }
            trace.add("-> \(loop.run(until: .ms(50), returnAfterSourceHandled: true))")
            return trace.description
        }
        #expect(trace == "E T S custom port:x X -> handledSource")
    }
}
