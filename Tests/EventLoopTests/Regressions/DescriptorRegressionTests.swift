// Bugs of descriptor sources that a review found. Each has one rule:
// - If the descriptor of a source in several modes is closed, the source fails once, with the reason.
// - A one-shot source can be rearmed even if it shares the kernel's watch or watches only `.closed`.
// - If a neighbour consumes the data before a one-shot source is called, the source is called at the next readiness.
// - If the kernel reports an event to an outer run only once, as it does for edges, a nested run of the same mode still delivers it.
// - If another thread removes a source while the loop sleeps, the source is not called after `remove` has returned.
// - The handler of a source in two loops runs on one thread at a time, even if the second loop joins during a call.
// - If a source fails while its mode's base is made, its last callout may remove other sources from the mode.
// - Of sources that fail together, each has its reason, also if a callout of another one ends it.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.lifetimes)) struct DescriptorRegressionTests {
    private typealias Source = RunLoop.DescriptorSource

    /// Duplicates the read end with a number so high that no other test's files reuse it after it is closed. Each test has its own `area`.
    private static func highNumber(for pipe: Pipe, area: Int32) -> Int32 {
        let number = fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, area)
        precondition(number >= 0)
        return number
    }

    @Test func `a source in two modes fails once if its events are set after its descriptor was closed`() throws {
        let outcome = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let number = Self.highNumber(for: pipe, area: 800)
            let source = try Source(descriptor: number, events: .read) { _, _ in trace.add("called") }
            source.onInvalidation { trace.add("let go") }
            let alive = [loop.keepAlive(), loop.keepAlive(forMode: "other")]
            defer { alive.forEach { $0.cancel() } }
            loop.add(source)
            loop.add(source, forMode: "other")
            _ = loop.run(for: .zero)
            _ = loop.run(mode: "other", for: .zero)
            close(number)
            source.events = .write
            _ = loop.run(for: .zero)
            _ = loop.run(mode: "other", for: .zero)
            return "\(trace), valid \(source.isValid), \(source.failure == .badDescriptor(number))"
        }
        #expect(outcome == "let go, valid false, true")
    }

    @Test func `a one-shot source that watches only closed can be rearmed`() throws {
        let calls = try inManualTime { loop, _, _ in
            let sockets = SocketPair()
            let calls = Box(0)
            let source = try Source(descriptor: sockets.near, events: .closed, trigger: .oneShot) { _, _ in
                withExtendedLifetime(sockets) { _ = calls.increment() }
            }
            loop.add(source)
            sockets.closeFarVisibly()
            return (0..<4).map { _ in
                for _ in 0..<3 { _ = loop.run(for: .zero) }
                source.rearm()
                return calls.value
            }
        }
        #expect(calls == [1, 2, 3, 4])
    }

    @Test func `a one-shot source can be rearmed beside an edge-triggered source of the same descriptor`() throws {
        let calls = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            let calls = Box(0)
            let source = try readSource(pipe, trigger: .oneShot) { _ in calls.increment() }
            loop.add(try readSource(pipe, trigger: .edge) { _ in })
            loop.add(source)
            return (0..<4).map { _ in
                pipe.write()
                for _ in 0..<3 { _ = loop.run(for: .zero) }
                source.rearm()
                return calls.value
            }
        }
        #expect(calls == [1, 2, 3, 4])
    }

    @Test(arguments: [false, true])
    func `a one-shot source whose readiness a neighbour consumed is called at the next readiness`(leftOver: Bool) throws {
        let trace = try inManualTime { loop, _, trace in
            let sockets = SocketPair()
            let neighbours = Pipe()
            loop.add(
                try readSource(neighbours) { _ in
                    neighbours.readAll()
                    drain(sockets.near)
                    trace.add("taken")
                })
            loop.add(
                try Source(descriptor: sockets.near, events: [.read, .closed], trigger: .oneShot) { _, _ in
                    trace.add("heard:\(drain(sockets.near))")
                })
            neighbours.write()
            sockets.sendFromFar("a")
            _ = loop.run(for: .zero, returnAfterSourceHandled: leftOver)
            for _ in 0..<3 { _ = loop.run(for: .zero) }
            sockets.sendFromFar("b")
            for _ in 0..<3 { _ = loop.run(for: .zero) }
            return trace.description
        }
        #expect(trace == "taken heard:b")
    }

    @Test(arguments: ["level", "edge", "oneShot"])
    func `a nested run of the same mode calls a source of the outer run's batch`(kind: String) throws {
        let trigger: Source.Trigger = kind == "level" ? .level : kind == "edge" ? .edge : .oneShot
        let (trace, result) = try inManualTime { loop, _, trace in
            let (first, second) = (Pipe(), Pipe())
            let result = Box<RunLoop.RunResult?>(nil)
            let nested = Once()
            for pipe in [first, second] {
                loop.add(
                    try readSource(pipe, trigger: trigger) { _ in
                        trace.add("\(pipe.readAll())@\(loop.runDepth)")
                        if nested.isFirst() { result.value = loop.run(for: .milliseconds(200), returnAfterSourceHandled: true) }
                    })
            }
            first.write("a")
            second.write("b")
            for _ in 0..<3 { _ = loop.run(for: .zero) }
            return (trace.list, result.value)
        }
        #expect(trace == ["a@1", "b@2"] || trace == ["b@1", "a@2"])
        #expect(result == .handledSource)
    }

    @Test func `a source that another thread removes while the loop sleeps is not called`() throws {
        let outcome = try onFreshThread { loop in
            let calls = Box(0)
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in
                calls.increment()
                pipe.readAll()
            }
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.add(source)
            loop.atFirst(.afterWaiting) {
                try? plainThread { loop.remove(source) }.join()
                loop.stop()
            }
            let writer = plainThread {
                try waitUntilAsleep(loop)
                pipe.write()
            }
            let result = loop.run(for: patience)
            try writer.join()
            _ = loop.run(for: .zero)
            return "\(result), \(calls.value) calls"
        }
        #expect(outcome == "stopped, 0 calls")
    }

    @Test func `the handler of a source runs on one thread at a time even if a second loop joins during a call`() throws {
        let most = try onFreshThread { loop in
            let second = try RunLoopThread(name: "second")
            defer {
                second.stop()
                #expect(second.join(timeout: patience))
            }
            let (inside, most, calls, joins) = (Box(0), Box(0), Box(0), Once())
            let pipe = Pipe()
            let source = try readSource(pipe) { source in
                let count = inside.increment()
                most.change { $0 = max($0, count) }
                if joins.isFirst() {
                    second.runLoop.add(source)
                    // After more than one of these performs, the second loop has carried out the addition.
                    for _ in 0..<5 { try? second.runLoop.performAndWait {} }
                }
                pipe.readAll()
                inside.change { $0 -= 1 }
                calls.increment()
            }
            loop.add(source)
            pipe.write()
            _ = loop.run(for: .zero)
            // The second loop calls the source for this write.
            pipe.write()
            try waitUntil { calls.value >= 2 }
            source.invalidate()
            return most.value
        }
        #expect(most == 1)
    }

    @Test func `a source that fails while the base is made may remove other sources from the mode`() throws {
        let outcome = try inManualTime { loop, _, trace in
            let pipes = (0..<4).map { _ in Pipe() }
            let number = Self.highNumber(for: pipes[0], area: 830)
            let bad = try Source(descriptor: number, events: .read) { _, _ in trace.add("bad") }
            let others = try pipes.enumerated().map { index, pipe in try readSource(pipe) { _ in trace.add("\(index):\(pipe.readAll())") } }
            bad.onInvalidation {
                trace.add("let go")
                for index in [0, 1, 3] { loop.remove(others[index]) }
            }
            loop.add(others[0])
            loop.add(bad)
            for other in others.dropFirst() { loop.add(other) }
            close(number)
            for pipe in pipes { pipe.write("x") }
            for _ in 0..<3 { _ = loop.run(for: .zero) }
            return "\(trace), \(others.map { loop.contains($0) }), \(bad.failure == .badDescriptor(number))"
        }
        #expect(outcome == "let go 2:x, [false, false, true, false], true")
    }

    @Test func `a source that fails together with another one has its reason, also if a callout of that one ends it`() throws {
        let outcome = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let numbers = (0..<2).map { _ in Self.highNumber(for: pipe, area: 920) }
            let sources = try numbers.map { try Source(descriptor: $0, events: .read) { _, _ in trace.add("called") } }
            sources[0].onInvalidation {
                trace.add("first")
                sources[1].invalidate()
            }
            sources[1].onInvalidation { trace.add("second \($0.failure == .badDescriptor(numbers[1]))") }
            for source in sources { loop.add(source) }
            for number in numbers { close(number) }
            _ = loop.run(for: .zero)
            return "\(trace), \(sources.map { $0.isValid }), \(sources[0].failure == .badDescriptor(numbers[0]))"
        }
        #expect(outcome == "first second true, [false, false], true")
    }
}
