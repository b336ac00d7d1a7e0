// Adding and removing descriptor sources (semantics 4):
// 4.3  Adding from another thread reaches a sleeping loop. A source that is removed before it is served is not called, and the kernel
//      keeps its event. (9.3) The same holds for removal by another thread, unless the call was in progress.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory, .threads)) struct DescriptorMembershipTests {
    // MARK: 4.3

    @Test func `a sleeping loop serves a ready descriptor that another thread adds`() throws {
        let outcome = try onFreshThread { loop in
            let trace = Trace()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let pipe = Pipe()
            pipe.write("ab")
            let source = try readSource(pipe) { _ in
                trace.add("read:\(pipe.readAll())")
                loop.stop()
            }
            let other = plainThread {
                try waitUntilAsleep(loop)
                return loop.add(source)
            }
            trace.add("-> \(loop.run(for: patience))")
            return "\(try other.join()) \(trace)"
        }
        #expect(outcome == "true read:ab -> stopped")
    }

    @Test func `a sleeping loop serves a descriptor that another thread adds and that becomes ready later`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in
                trace.add("read:\(pipe.readAll())")
                loop.stop()
            }
            let other = plainThread {
                try waitUntilAsleep(loop)
                loop.add(source)
                try waitUntilAsleep(loop)
                pipe.write("ab")
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            return trace.description
        }
        #expect(trace == "read:ab -> stopped")
    }

    @Test func `removing the last descriptor from another thread ends the run of a sleeping loop`() throws {
        let result = try onFreshThread { loop in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in }
            loop.add(source)
            let other = plainThread {
                try waitUntilAsleep(loop)
                loop.remove(source)
            }
            let result = loop.run(for: patience)
            try other.join()
            return result
        }
        #expect(result == .finished)
    }

    /// Two sources are ready in one pass. The first one served applies `change` to the other. After the run, the other is added (again).
    private func firstServed(
        does change: @escaping @Sendable (RunLoop, RunLoop.DescriptorSource) -> Void
    ) throws -> (trace: String, valid: Bool) {
        try inManualTime { loop, _, trace in
            let (one, two) = (Pipe(), Pipe())
            let sources = Box<[RunLoop.DescriptorSource]>([])
            @Sendable func serve(_ source: RunLoop.DescriptorSource, _ pipe: Pipe) {
                pipe.readAll()
                trace.add("served")
                guard
                    let other = sources.change({ list in
                        defer { list = [] }
                        return list.first { $0 !== source }
                    })
                else { return }
                change(loop, other)
                sources.value = [other]
            }
            let first = try readSource(one) { serve($0, one) }
            let second = try readSource(two) { serve($0, two) }
            sources.value = [first, second]
            for source in [first, second] { loop.add(source) }
            for pipe in [one, two] { pipe.write() }
            trace.add("\(loop.run(until: .ms(50)));")
            let other = sources.value[0]
            sources.value = []
            loop.add(other)
            trace.add("\(loop.run(until: .ms(100)))")
            return (trace.description, other.isValid)
        }
    }

    @Test func `a ready source that an earlier source removes is not called, and the kernel keeps its event`() throws {
        let (trace, valid) = try firstServed { loop, other in loop.remove(other) }
        #expect(trace == "served timedOut; served timedOut")
        #expect(valid)
    }

    @Test func `a ready source that an earlier source invalidates is not called`() throws {
        let (trace, valid) = try firstServed { _, other in other.invalidate() }
        #expect(trace == "served timedOut; timedOut")
        #expect(!valid)
    }

    @Test func `a ready source that an earlier source removes and adds again is called once, in a later pass`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let (one, two) = (Pipe(), Pipe())
            let sources = Box<[RunLoop.DescriptorSource]>([])
            @Sendable func serve(_ source: RunLoop.DescriptorSource, _ pipe: Pipe) {
                pipe.readAll()
                trace.add("served")
                let all = sources.change { list in
                    defer { list = [] }
                    return list
                }
                for other in all where other !== source {
                    loop.remove(other)
                    loop.add(other)
                }
            }
            let first = try readSource(one) { serve($0, one) }
            let second = try readSource(two) { serve($0, two) }
            sources.value = [first, second]
            for source in [first, second] { loop.add(source) }
            for pipe in [one, two] { pipe.write() }
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S served T S served T S W A X -> timedOut")
    }

    // MARK: 4.3, from another thread

    /// Two sources are ready in one pass. While the handler of the first one served is in progress, another thread applies `change` to
    /// the other source.
    private func callsAfterOtherThread(does change: @escaping @Sendable (RunLoop, RunLoop.DescriptorSource) -> Void) throws -> Int {
        try inManualTime { loop, _, _ in
            let calls = Box(0)
            let sources = Box<[RunLoop.DescriptorSource]>([])
            for _ in 0..<2 {
                let pipe = Pipe()
                pipe.write()
                let source = try readSource(pipe) { source in
                    guard calls.increment() == 1 else { return }
                    let other = sources.value.first { $0 !== source }!
                    _ = try? plainThread { change(loop, other) }.join()
                }
                sources.change { $0.append(source) }
            }
            for source in sources.value { loop.add(source) }
            _ = loop.run(for: .zero)
            sources.value = []
            return calls.value
        }
    }

    @Test func `a ready source that another thread removes before its turn is not called`() throws {
        #expect(try callsAfterOtherThread { loop, other in loop.remove(other) } == 1)
    }

    @Test func `a ready source that another thread invalidates before its turn is not called`() throws {
        #expect(try callsAfterOtherThread { _, other in other.invalidate() } == 1)
    }

    @Test func `a ready source whose events another thread clears before its turn is not called`() throws {
        #expect(try callsAfterOtherThread { _, other in other.events = [] } == 1)
    }

    @Test func `a ready source that the other thread does not change is called in the same pass`() throws {
        #expect(try callsAfterOtherThread { _, _ in } == 2)
    }
}
