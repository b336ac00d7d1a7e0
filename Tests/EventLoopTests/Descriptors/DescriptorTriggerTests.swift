// Triggers, and several sources on one descriptor (semantics 4.2, 4.10, 4.12, 4.13):
//  - level: called as long as the descriptor is ready; edge: called once for each arrival; one-shot: called once, until rearm.
//  - Several sources may watch one descriptor, for the same or different events, at the same or different priorities.
//  - Sources with different triggers on one descriptor each keep their own trigger, in whatever order they were added.
//  - After a run that returned after one source, the loop polls the kernel again for level-triggered sources that it did not call.
//    Edge-triggered and one-shot sources wait in the ready list.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct DescriptorTriggerTests {
    private typealias Trigger = RunLoop.DescriptorSource.Trigger

    /// Makes `count` polling passes.
    private static func poll(_ loop: RunLoop, _ count: Int = 1) {
        for _ in 0..<count { _ = loop.run(for: .zero) }
    }

    // MARK: Edge

    @Test func `an edge-triggered source is called once for each arrival, whether or not it reads`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            loop.add(try readSource(pipe, trigger: .edge) { _ in trace.add("edge") })
            pipe.write()
            Self.poll(loop, 3)
            trace.add("more")
            pipe.write()
            Self.poll(loop, 3)
            trace.add("drained")
            pipe.readAll()
            Self.poll(loop, 3)
            trace.add("again")
            pipe.write()
            Self.poll(loop, 3)
            return trace.description
        }
        #expect(trace == "edge more edge drained again edge")
    }

    @Test func `an edge-triggered source that is ready when it is added is called`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            pipe.write()
            loop.add(try readSource(pipe, trigger: .edge) { _ in trace.add("edge") })
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S edge T S W A X -> timedOut")
    }

    // MARK: One-shot

    @Test func `a one-shot source is called once, and then stays valid and in its mode without calls until rearm`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            let source = try readSource(pipe, trigger: .oneShot) { _ in trace.add("once") }
            loop.add(source)
            pipe.write()
            trace.add("-> \(loop.run(until: .ms(50))) valid \(source.isValid), in the mode \(loop.contains(source));")
            pipe.write()
            trace.add("-> \(loop.run(until: .ms(100)));")
            source.rearm()
            trace.add("-> \(loop.run(until: .ms(150)))")
            return trace.description
        }
        #expect(
            trace == """
                E T S once T S W A X -> timedOut valid true, in the mode true; E T S W A X -> timedOut; \
                E T S once T S W A X -> timedOut
                """)
    }

    @Test func `a one-shot source rearmed in its handler is called again while data remains`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            let calls = Box(0)
            loop.add(
                try readSource(pipe, trigger: .oneShot) { source in
                    trace.add("once")
                    if calls.increment() == 3 { pipe.readAll() }
                    source.rearm()
                })
            pipe.write()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S once T S once T S once T S W A X -> timedOut")
    }

    @Test func `rearm from another thread takes effect in a sleeping loop`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let pipe = Pipe()
            let calls = Box(0)
            let source = try readSource(pipe, trigger: .oneShot) { _ in
                trace.add("once")
                if calls.increment() == 2 { loop.stop() }
            }
            loop.add(source)
            pipe.write()
            let other = plainThread {
                try waitUntil { calls.value == 1 }
                try waitUntilAsleep(loop)
                trace.add("rearm")
                source.rearm()
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            return trace.description
        }
        #expect(trace == "once rearm once -> stopped")
    }

    @Test func `rearming a source that is armed, or not one-shot, changes nothing`() throws {
        let trace = try inManualTime { loop, _, trace in
            let (level, edge, once) = (Pipe(), Pipe(), Pipe())
            let sources = [
                try readSource(level) { _ in trace.add("level:\(level.readAll())") },
                try readSource(edge, trigger: .edge) { _ in trace.add("edge") },
                try readSource(once, trigger: .oneShot) { _ in trace.add("once") },
            ]
            for source in sources { loop.add(source) }
            for source in sources { source.rearm() }
            Self.poll(loop, 2)
            trace.add("nothing yet;")
            level.write("a")
            Self.poll(loop, 2)
            edge.write()
            Self.poll(loop)
            sources[1].rearm()
            Self.poll(loop, 2)
            once.write()
            Self.poll(loop, 2)
            return trace.description
        }
        #expect(trace == "nothing yet; level:a edge once")
    }

    // MARK: Several on one descriptor

    @Test func `several sources on one descriptor are all called`() throws {
        let calls = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            let calls = (0..<3).map { _ in Box(0) }
            for count in calls { loop.add(try readSource(pipe) { _ in count.increment() }) }
            pipe.write()
            _ = loop.run(for: .zero)
            return calls.map(\.value)
        }
        #expect(calls == [1, 1, 1])
    }

    @Test func `removing one of several sources on a descriptor does not affect the others`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let first = try readSource(pipe) { _ in trace.add("first") }
            let second = try readSource(pipe) { _ in trace.add("second") }
            loop.add(first)
            loop.add(second)
            Self.poll(loop)
            pipe.write()
            first.invalidate()
            Self.poll(loop)
            let third = try readSource(pipe) { _ in trace.add("third") }
            loop.add(third)
            loop.remove(second)
            Self.poll(loop)
            return trace.description
        }
        #expect(trace == "second third")
    }

    @Test func `one source reads and another writes on the same socket`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let reader = try RunLoop.DescriptorSource(descriptor: pair.near, events: .read) { _, events in
                trace.add("reader:\(describe(events)):\(drain(pair.near))")
            }
            let writer = try RunLoop.DescriptorSource(descriptor: pair.near, events: .write) { source, events in
                trace.add("writer:\(describe(events))")
                source.invalidate()
            }
            loop.add(reader)
            loop.add(writer)
            Self.poll(loop, 2)
            pair.sendFromFar("ab")
            Self.poll(loop, 2)
            return trace.description
        }
        #expect(trace == "writer:write reader:read:ab")
    }

    @Test func `sources with different priorities on one descriptor are served in order of priority`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            loop.add(
                try readSource(pipe, priority: .low) { source in
                    trace.add("low:\(pipe.readAll())")
                })
            loop.add(
                try readSource(pipe, priority: .high) { source in
                    trace.add("high")
                    source.invalidate()
                })
            pipe.write("ab")
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S high T S low:ab T S W A X -> timedOut")
    }

    // MARK: Mixed triggers

    private static let orders: [[Trigger]] = [
        [.level, .edge, .oneShot], [.level, .oneShot, .edge], [.edge, .level, .oneShot],
        [.edge, .oneShot, .level], [.oneShot, .level, .edge], [.oneShot, .edge, .level],
    ]

    @Test(arguments: orders)
    func `sources with different triggers on one descriptor each keep their own trigger`(order: [RunLoop.DescriptorSource.Trigger]) throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let counts = Box<[RunLoop.DescriptorSource.Trigger: Int]>([:])
            for trigger in order {
                loop.add(try readSource(pipe, trigger: trigger) { _ in counts.change { $0[trigger, default: 0] += 1 } })
            }
            func note(_ words: String) {
                let count = counts.value
                trace.add("\(words): level \(count[.level] ?? 0) edge \(count[.edge] ?? 0) one-shot \(count[.oneShot] ?? 0);")
                counts.value = [:]
            }
            Self.poll(loop)
            note("quiet")
            pipe.write()
            Self.poll(loop, 3)
            note("data in three passes")
            pipe.write()
            Self.poll(loop, 3)
            note("more data")
            pipe.readAll()
            Self.poll(loop, 3)
            note("drained")
            return trace.description
        }
        #expect(
            trace == """
                quiet: level 0 edge 0 one-shot 0; data in three passes: level 3 edge 1 one-shot 1; \
                more data: level 3 edge 1 one-shot 0; drained: level 0 edge 0 one-shot 0;
                """)
    }

    @Test(arguments: orders)
    func `removing one of several mixed triggers does not affect the others`(order: [RunLoop.DescriptorSource.Trigger]) throws {
        let counts = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            let counts = Box<[Int]>([0, 0, 0])
            var sources: [RunLoop.DescriptorSource] = []
            for (index, trigger) in order.enumerated() {
                let source = try readSource(pipe, trigger: trigger) { _ in counts.change { $0[index] += 1 } }
                sources.append(source)
                loop.add(source)
            }
            Self.poll(loop)
            loop.remove(sources[0])
            pipe.write()
            Self.poll(loop, 3)
            return counts.value
        }
        let expected: [Trigger: Int] = [.level: 3, .edge: 1, .oneShot: 1]
        #expect(counts == [0, expected[order[1]]!, expected[order[2]]!])
    }

    @Test func `unread data of a level-triggered source does not call an edge-triggered source again, however long the loop runs`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let calls = Box(0)
            loop.add(
                try readSource(pipe) { _ in
                    trace.add("level")
                    if calls.increment() == 4 { loop.stop() }
                })
            loop.add(try readSource(pipe, trigger: .edge) { _ in trace.add("edge") })
            pipe.write()
            _ = loop.run(until: .ms(50))
            return trace.list.filter { $0 == "edge" }.count
        }
        #expect(trace == 1)
    }

    @Test func `the silent sources of a mixed pair cause no passes of their own`() throws {
        // The one-shot source's data stays unread. Its nested poller is always readable, and must not spin the loop.
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let once = try RunLoop.DescriptorSource(descriptor: pair.near, events: .read, trigger: .oneShot) { _, _ in trace.add("once") }
            let writer = try RunLoop.DescriptorSource(descriptor: pair.near, events: .write, trigger: .edge) { _, _ in trace.add("edge") }
            loop.add(once)
            loop.add(writer)
            pair.sendFromFar("x")
            Self.poll(loop, 3)
            trace.add("quiet:")
            trace.observe(loop)
            trace.add("-> \(loop.run(until: .ms(50)))")
            return withExtendedLifetime(pair) { trace.list.filter { $0 != "once" && $0 != "edge" }.joined(separator: " ") }
        }
        #expect(trace == "quiet: E T S W A X -> timedOut")
    }

    // MARK: Leftovers

    /// Three sources are ready. One run returns after a source. Then all data is read, and the passes that follow call the leftovers.
    private func leftovers(_ trigger: RunLoop.DescriptorSource.Trigger) throws -> String {
        try inManualTime { loop, _, trace in
            let pipes = (0..<3).map { _ in Pipe() }
            for pipe in pipes {
                loop.add(try readSource(pipe, trigger: trigger) { _ in trace.add("called") })
                pipe.write()
            }
            trace.add("\(loop.run(until: .ms(10), returnAfterSourceHandled: true));")
            for pipe in pipes { pipe.readAll() }
            Self.poll(loop, 3)
            return trace.description
        }
    }

    @Test func `leftover level-triggered sources are called only if the kernel still reports them ready`() throws {
        #expect(try leftovers(.level) == "called handledSource;")
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.edge, .oneShot])
    func `leftover edge-triggered and one-shot sources wait, and are called once each`(
        trigger: RunLoop.DescriptorSource.Trigger
    ) throws {
        #expect(try leftovers(trigger) == "called handledSource; called called")
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.edge, .oneShot])
    func `leftovers count as handled sources, one in each run`(trigger: RunLoop.DescriptorSource.Trigger) throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            for _ in 0..<3 {
                let pipe = Pipe()
                loop.add(try readSource(pipe, trigger: trigger) { _ in trace.add("called") })
                pipe.write()
            }
            for _ in 0..<4 { trace.add("-> \(loop.run(for: .milliseconds(10), returnAfterSourceHandled: true));") }
            return trace.description
        }
        #expect(
            trace == """
                E T S called X -> handledSource; E T S called X -> handledSource; E T S called X -> handledSource; \
                E T S W A X -> timedOut;
                """)
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.edge, .oneShot])
    func `a leftover source that is removed before the next run is not called`(trigger: RunLoop.DescriptorSource.Trigger) throws {
        let calls = try inManualTime { loop, _, _ in
            let called = Box<[Int]>([])
            var sources: [RunLoop.DescriptorSource] = []
            for index in 0..<2 {
                let pipe = Pipe()
                let source = try readSource(pipe, trigger: trigger) { _ in called.change { $0.append(index) } }
                sources.append(source)
                loop.add(source)
                pipe.write()
            }
            _ = loop.run(until: .ms(10), returnAfterSourceHandled: true)
            for source in sources { loop.remove(source) }
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            Self.poll(loop, 3)
            return called.value.count
        }
        #expect(calls == 1)
    }
}
