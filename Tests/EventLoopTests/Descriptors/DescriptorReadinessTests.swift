// Descriptor sources in general (semantics 4, and step 5 of a pass):
// 4.1  The kernel reports readiness. A pass serves every descriptor that it found ready; a run that returns after a source serves exactly
//      one, and the others stay ready.
// 1.1  A descriptor that is ready at step 5 is served without beforeWaiting and afterWaiting.
// 1.5  A served descriptor counts as a handled source.
// 4.2  The loop never reads the descriptor. Sources are level-triggered by default. Several sources may watch one descriptor.
// 2.8  Readiness in other modes stays pending.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct DescriptorReadinessTests {
    // MARK: Step 5

    @Test func `a descriptor that is ready at step 5 is served without the waiting notifications`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            loop.add(try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") })
            pipe.write("ab")
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S read:ab T S W A X -> timedOut")
    }

    @Test func `a descriptor that becomes ready during the wait is served after afterWaiting`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            // Written in beforeWaiting: after step 5 has polled, and before the loop sleeps.
            let written = Box(false)
            trace.observe(loop) { activity in
                guard activity == .beforeWaiting, !written.value else { return }
                written.value = true
                pipe.write("ab")
            }
            loop.add(try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") })
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S W A read:ab T S W A X -> timedOut")
    }

    @Test func `a descriptor that another thread makes ready ends the wait`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            trace.observe(loop)
            let pipe = Pipe()
            loop.add(
                try readSource(pipe) { _ in
                    trace.add("read:\(pipe.readAll())")
                    loop.stop()
                })
            let other = plainThread {
                try waitUntilAsleep(loop)
                pipe.write("ab")
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            return trace.description
        }
        #expect(trace == "E T S W A read:ab X -> stopped")
    }

    @Test func `a run with a limit of zero serves a ready descriptor and does not wait for others`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let (ready, quiet) = (Pipe(), Pipe())
            loop.add(try readSource(ready) { _ in trace.add("read:\(ready.readAll())") })
            loop.add(try readSource(quiet) { _ in trace.add("?") })
            ready.write("ab")
            trace.add("-> \(loop.run(for: .zero))")
            trace.add("-> \(loop.run(for: .zero))")
            return trace.description
        }
        #expect(trace == "E T S read:ab X -> timedOut E T S X -> timedOut")
    }

    @Test func `a descriptor source keeps its mode from being empty`() throws {
        let results = try inManualTime { loop, _, _ in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in }
            loop.add(source)
            let with = loop.run(until: .ms(10))
            loop.remove(source)
            return [with, loop.run(until: .ms(20))]
        }
        #expect(results == [.timedOut, .finished])
    }

    @Test func `the handler receives the ready events, on the loop's thread, while the loop is not waiting`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let source = try RunLoop.DescriptorSource(descriptor: pair.near, events: [.read, .write]) { source, events in
                trace.add("\(describe(events)) of \(source.descriptor == pair.near) current \(loop.isCurrent) waiting \(loop.isWaiting);")
                drain(pair.near)
                loop.stop()
            }
            loop.add(source)
            _ = loop.run(until: .ms(50))
            pair.sendFromFar("x")
            _ = loop.run(until: .ms(100))
            return trace.description
        }
        #expect(trace == "write of true current true waiting false; read+write of true current true waiting false;")
    }

    // MARK: 4.1 and 1.5

    @Test func `a pass serves every descriptor that it found ready`() throws {
        let passes = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipes = (0..<5).map { _ in Pipe() }
            for pipe in pipes { loop.add(try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") }) }
            for pipe in pipes { pipe.write() }
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(passes == "E T S read:x read:x read:x read:x read:x T S W A X -> timedOut")
    }

    @Test func `a run that returns after a source serves exactly one descriptor, and the others stay ready`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let served = Box<Set<Int>>([])
            for number in 0..<3 {
                try addReadySource(to: loop) {
                    served.change { _ = $0.insert(number) }
                    trace.add("read")
                }
            }
            for _ in 0..<4 {
                trace.add("-> \(loop.run(for: .milliseconds(10), returnAfterSourceHandled: true)) \(served.value.count);")
            }
            return trace.description
        }
        #expect(
            trace == """
                E T S read X -> handledSource 1; E T S read X -> handledSource 2; E T S read X -> handledSource 3; \
                E T S W A X -> timedOut 3;
                """)
    }

    // MARK: 4.2

    @Test func `the loop reads nothing from the descriptor`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            loop.add(
                try readSource(pipe) { _ in
                    trace.add(pipe.readAll())
                    loop.stop()
                })
            pipe.write("12345678 and the rest")
            _ = loop.run(until: .ms(50))
            return trace.description
        }
        #expect(trace == "12345678 and the rest")
    }

    @Test func `unread data calls the handler again in the next pass`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            let calls = Box(0)
            loop.add(
                try readSource(pipe) { _ in
                    trace.add("call")
                    if calls.increment() == 3 { pipe.readAll() }
                })
            pipe.write()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S call T S call T S call T S W A X -> timedOut")
    }

    // MARK: 2.8

    @Test func `readiness stays pending while only other modes run`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            loop.add(try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") })
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            _ = loop.run(for: .zero)
            pipe.write("ab")
            trace.add("other \(loop.run(mode: "other", until: .ms(10)));")
            trace.add("default \(loop.run(until: .ms(20)))")
            return trace.description
        }
        #expect(trace == "other timedOut; read:ab default timedOut")
    }

    @Test func `a source in several modes is served in each`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in trace.add("\(loop.currentMode!):\(pipe.readAll())") }
            loop.add(source)
            loop.add(source, forMode: "other")
            for (mode, text) in [("default", "a"), ("other", "b"), ("default", "c"), ("other", "d")] {
                pipe.write(text)
                _ = loop.run(mode: .init(mode), for: .milliseconds(1))
            }
            return trace.description
        }
        #expect(trace == "default:a other:b default:c other:d")
    }

    @Test func `a source added to the common modes is served in every one of them`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pipe = Pipe()
            loop.addCommonMode("early")
            loop.add(try readSource(pipe) { _ in trace.add("\(loop.currentMode!):\(pipe.readAll())") }, forMode: .common)
            loop.addCommonMode("late")
            for mode in ["default", "early", "late"] as [RunLoop.Mode] {
                pipe.write()
                _ = loop.run(mode: mode, for: .milliseconds(1))
            }
            return trace.description
        }
        #expect(trace == "default:x early:x late:x")
    }

    // MARK: Nested runs

    @Test func `a nested run of the same mode serves the descriptors that the outer pass found ready, once each`() throws {
        let trace = try inManualTime { loop, _, trace in
            let depth = Box(0)
            for _ in 0..<3 {
                try addReadySource(to: loop) {
                    trace.add("begin")
                    if depth.increment() == 1 { _ = loop.run(for: .milliseconds(5)) }
                    trace.add("end")
                }
            }
            trace.add("-> \(loop.run(for: .milliseconds(10)))")
            return trace.description
        }
        #expect(trace == "begin begin end begin end end -> timedOut")
    }
}
