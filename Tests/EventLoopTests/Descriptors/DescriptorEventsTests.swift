// `events` can be set at any time (API: DescriptorSource.events):
//  - A source without events stays registered, keeps its mode alive, and is not called. Setting events again resumes the calls.
//  - A change takes effect before the next wait: in the handler, between runs, and from another thread.
//  - Setting the events of an invalid source has no effect.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct DescriptorEventsTests {
    @Test func `a source without events stays in its mode, keeps it alive and is not called; setting events resumes its calls`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") }
            loop.add(source)
            pipe.write("ab")
            source.events = []
            trace.add("-> \(loop.run(until: .ms(10))), in the mode \(loop.contains(source));")
            source.events = .read
            trace.add("-> \(loop.run(until: .ms(20)))")
            return trace.description
        }
        #expect(trace == "E T S W A X -> timedOut, in the mode true; E T S read:ab T S W A X -> timedOut")
    }

    @Test func `a source created without events can get events later`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let source = try RunLoop.DescriptorSource(descriptor: pair.near, events: []) { source, events in
                withExtendedLifetime(pair) { trace.add(describe(events)) }
                source.events = []
            }
            loop.add(source)
            trace.add("\(describe(source.events)):\(loop.run(until: .ms(10)))")
            source.events = [.read, .write]
            trace.add("\(describe(source.events))")
            trace.add(":\(loop.run(until: .ms(20)))")
            return trace.description
        }
        #expect(trace == ":timedOut read+write write :timedOut")
    }

    @Test func `a handler that has finished writing can switch to reading`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pair.near, events: .write) { source, events in
                    trace.add(describe(events))
                    if events.contains(.write) {
                        source.events = .read
                        pair.sendFromFar("answer")
                    } else {
                        trace.add(drain(pair.near))
                        source.events = .write
                    }
                    if trace.list.count == 7 { loop.stop() }
                })
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "write read answer write read answer write -> stopped")
    }

    @Test func `events set from another thread take effect in a sleeping loop`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let pair = SocketPair()
            let source = try RunLoop.DescriptorSource(descriptor: pair.near, events: .read) { _, events in
                withExtendedLifetime(pair) { trace.add(describe(events)) }
                loop.stop()
            }
            loop.add(source)
            let other = plainThread {
                try waitUntilAsleep(loop)
                source.events = .write
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            return trace.description
        }
        #expect(trace == "write -> stopped")
    }

    @Test func `a ready source is not called if an earlier source of the pass clears its events`() throws {
        let calls = try inManualTime { loop, _, _ in
            let calls = Box(0)
            let sources = Box<[RunLoop.DescriptorSource]>([])
            for _ in 0..<2 {
                let pipe = Pipe()
                pipe.write()
                let source = try readSource(pipe) { source in
                    calls.increment()
                    for other in sources.value where other !== source { other.events = [] }
                }
                sources.change { $0.append(source) }
            }
            for source in sources.value { loop.add(source) }
            _ = loop.run(for: .zero)
            sources.value = []
            return calls.value
        }
        #expect(calls == 1)
    }

    @Test func `a change of events applies in every mode of the source`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in trace.add("\(loop.currentMode!)") }
            loop.add(source)
            loop.add(source, forMode: "other")
            pipe.write()
            func poll() {
                _ = loop.run(for: .zero)
                _ = loop.run(mode: "other", for: .zero)
            }
            poll()
            source.events = []
            poll()
            trace.add("silent")
            source.events = .read
            poll()
            return trace.description
        }
        #expect(trace == "default other silent default other")
    }

    @Test func `setting the events of an invalid source does nothing`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in trace.add("called") }
            loop.add(source)
            pipe.write()
            source.invalidate()
            source.events = [.read, .write]
            trace.add("added \(loop.add(source)) valid \(source.isValid) -> \(loop.run(until: .ms(10)))")
            return trace.description
        }
        #expect(trace == "added false valid false -> finished")
    }

    @Test func `setting the same events again does not repeat an edge`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let source = try readSource(pipe, trigger: .edge) { _ in trace.add("edge") }
            loop.add(source)
            pipe.write()
            for _ in 0..<3 { _ = loop.run(for: .zero) }
            source.events = source.events
            for _ in 0..<3 { _ = loop.run(for: .zero) }
            return trace.description
        }
        #expect(trace == "edge")
    }
}
