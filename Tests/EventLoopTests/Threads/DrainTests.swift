// Draining a RunLoopThread (semantics 9.25 to 9.29; decision 31):
//  - `setup` makes a context, which `drain` and `teardown` receive on the thread. It need not be Sendable.
//  - After stop(): runs end, `drain`, the loop accepts work until every hold is released or the limit has passed, the last batch, one pass
//    without a sleep, `teardown`.
//  - A hold can be taken on any thread at any time before the loop refuses work, and counts while the thread drains.
//  - The limit is in the loop's time. A later stop shortens it, and never lengthens it.
//  - The threads of a group drain at the same time.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct DrainTests {
    /// Not Sendable.
    private final class Library {
        var calls: [String] = ["made"]
        let trace: Trace
        init(_ trace: Trace) { self.trace = trace }
        deinit { trace.add("released") }
    }

    // MARK: The context

    @Test func `drain and teardown receive what setup returned, on the thread`() throws {
        let trace = Trace()
        let thread = try RunLoopThread(
            name: "context",
            setup: { loop in
                trace.add("setup \(loop.isCurrent)")
                return Library(trace)
            },
            drain: { loop, library in
                library.calls.append("drained")
                trace.add("drain \(loop.isCurrent) \(loop.runDepth)")
            },
            teardown: { loop, library in trace.add("teardown \(loop.isCurrent) \(loop.isValid) \(library.calls)") })
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(
            trace.list == [
                "setup true", "drain true 0", "teardown true true [\"made\", \"drained\"]", "released",
            ])
    }

    @Test func `the context is released on the thread, after teardown`() throws {
        let (here, there) = (Box(UInt(0)), Box(UInt(0)))
        let thread = try RunLoopThread(
            name: "released",
            setup: { _ in Canary { there.value = currentThreadID() } },
            teardown: { _, _ in here.value = currentThreadID() })
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(here.value != 0 && here.value == there.value)
    }

    @Test func `if setup throws, there is no drain and no teardown`() throws {
        struct Refused: Error {}
        let trace = Trace()
        #expect(throws: Refused.self) {
            try RunLoopThread(
                name: "refused", setup: { _ -> Int in throw Refused() },
                drain: { _, _ in trace.add("drain") }, teardown: { _, _ in trace.add("teardown") })
        }
        #expect(trace.description == "")
    }

    // MARK: The order

    @Test func `the loop accepts work between drain and the release of the last hold`() throws {
        let trace = Trace()
        let draining = Gate()
        let thread = try RunLoopThread(
            name: "order", drainLimit: .seconds(1 << 40), setup: { _ in trace },
            drain: { _, trace in
                trace.add("drain")
                draining.open()
            }, teardown: { _, trace in trace.add("teardown") })
        let holds = [thread.hold(), thread.runLoop.holdThread()]
        thread.stop()
        draining.wait()
        #expect(thread.runLoop.perform { trace.add("answer 1") })
        holds[0].release()
        #expect(try thread.runLoop.performAndWait { "still running" } == "still running")
        #expect(thread.runLoop.perform { trace.add("answer 2") })
        holds[1].release()
        #expect(!thread.runLoop.perform { trace.add("too late") })
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "drain answer 1 answer 2 teardown")
    }

    @Test func `runs in progress end before drain, and the thread runs its loop again after it`() throws {
        let trace = Trace()
        let (nested, hold) = (Gate(), Box<RunLoopThread.Hold?>(nil))
        let thread = try RunLoopThread(
            name: "nested", setup: { _ in },
            drain: { loop, _ in
                trace.add("drain \(loop.runDepth)")
                loop.perform {
                    trace.add("inside \(loop.runDepth)")
                    hold.value?.release()
                }
            }, teardown: { _, _ in trace.add("teardown") })
        hold.value = thread.hold()
        thread.runLoop.perform {
            let loop = thread.runLoop
            let alive = loop.keepAlive(forMode: "nested")
            loop.performBlock(inModes: ["nested"]) { nested.open() }
            trace.add("nested \(loop.run(mode: "nested", for: patience))")
            alive.cancel()
        }
        nested.wait()
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "nested stopped drain 0 inside 1 teardown")
    }

    @Test func `the release of the last hold ends a run that is nested while the thread drains`() throws {
        let trace = Trace()
        let nested = Gate()
        let thread = try RunLoopThread(
            name: "nested", setup: { _ in },
            drain: { loop, _ in
                loop.perform {
                    let alive = loop.keepAlive(forMode: "nested")
                    loop.performBlock(inModes: ["nested"]) { nested.open() }
                    trace.add("nested \(loop.run(mode: "nested", for: patience))")
                    alive.cancel()
                }
            }, teardown: { _, _ in trace.add("teardown") })
        let hold = thread.hold()
        thread.stop()
        nested.wait()
        hold.release()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "nested stopped teardown")
    }

    @Test func `without holds the thread drains and ends at once`() throws {
        let trace = Trace()
        let thread = try RunLoopThread(
            name: "no holds", drainLimit: .seconds(1 << 40), setup: { loop in trace.observe(loop) },
            drain: { loop, _ in trace.add("drain \(loop.perform { trace.add("perform") })") },
            teardown: { loop, _ in trace.add("teardown \(loop.perform {})") })
        try waitUntilAsleep(thread.runLoop)
        _ = trace.take()
        thread.stop()
        #expect(thread.join(timeout: patience))
        let list = trace.list.filter { $0.count > 1 }
        #expect(list == ["drain true", "perform", "teardown false"], "\(trace)")
    }

    @Test func `a pass without a sleep follows the last batch`() throws {
        let trace = Trace()
        let (busy, go) = (Gate(), Gate())
        let thread = try RunLoopThread(
            name: "pass", setup: { loop in trace.observe(loop) }, teardown: { _, _ in trace.add("teardown") })
        let hold = thread.hold()
        thread.stop()
        thread.runLoop.perform {
            busy.open()
            go.wait()
            _ = trace.take()
        }
        busy.wait()
        // Accepted, and too late for this pass.
        thread.runLoop.perform { trace.add("batch") }
        hold.release()
        go.open()
        #expect(thread.join(timeout: patience))
        // Whether the pass gets to W and A depends on when the wake-up of the release comes.
        #expect(trace.description.contains("X batch E T S ") && trace.description.hasSuffix(" X teardown"), "\(trace)")
    }

    @Test func `holds delay the end of a thread that has no drain closure and no context`() throws {
        let trace = Trace()
        let thread = try RunLoopThread(name: "plain", teardown: { _ in trace.add("teardown") })
        let hold = thread.hold()
        thread.stop()
        #expect(thread.runLoop.perform { trace.add("answer") })
        #expect(!thread.join(timeout: .milliseconds(1)))
        hold.release()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "answer teardown")
    }

    // MARK: Holds

    @Test func `a hold that is taken while the thread drains counts`() throws {
        let trace = Trace()
        let draining = Gate()
        let thread = try RunLoopThread(
            name: "later", setup: { _ in }, drain: { _, _ in draining.open() }, teardown: { _, _ in trace.add("teardown") })
        let first = thread.hold()
        thread.stop()
        draining.wait()
        let second = thread.hold()
        #expect(second.isValid)
        first.release()
        #expect(thread.runLoop.perform { trace.add("answer") })
        second.release()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "answer teardown")
    }

    @Test func `a hold that drain takes counts`() throws {
        let hold = Box<RunLoopThread.Hold?>(nil)
        let draining = Gate()
        let thread = try RunLoopThread(
            name: "drain", setup: { _ in },
            drain: { loop, _ in
                hold.value = loop.holdThread()
                draining.open()
            }, teardown: { _, _ in })
        thread.stop()
        draining.wait()
        #expect(try thread.runLoop.performAndWait { 42 } == 42)
        hold.value?.release()
        #expect(thread.join(timeout: patience))
    }

    @Test func `releasing a hold twice releases it once`() throws {
        let thread = try RunLoopThread(name: "twice")
        let (one, other) = (thread.hold(), thread.hold())
        one.release()
        one.release()
        #expect(!one.isValid && other.isValid)
        thread.stop()
        #expect(try thread.runLoop.performAndWait { 42 } == 42)
        other.release()
        #expect(thread.join(timeout: patience))
    }

    @Test func `releasing the last reference to a hold releases the hold`() throws {
        let thread = try RunLoopThread(name: "reference")
        let hold = Box<RunLoopThread.Hold?>(thread.hold())
        thread.stop()
        #expect(try thread.runLoop.performAndWait { 42 } == 42)
        hold.value = nil
        #expect(thread.join(timeout: patience))
    }

    @Test func `a hold that is taken too late is not valid and harmless`() throws {
        let late = Box<[Bool]>([])
        let thread = try RunLoopThread(
            name: "late", setup: { _ in }, teardown: { loop, _ in late.change { $0.append(loop.holdThread().isValid) } })
        thread.stop()
        #expect(thread.join(timeout: patience))
        let hold = thread.hold()
        late.change { $0.append(hold.isValid) }
        hold.release()
        #expect(late.value == [false, false])
    }

    @Test func `on a thread that runs its loop itself, a hold has no effect`() throws {
        let (hold, result) = try onFreshThread { loop in (loop.holdThread(), loop.run(for: .zero)) }
        #expect(result == .finished)
        hold.release()
        #expect(!hold.isValid)
    }

    @Test func `many threads take and release holds while the thread stops, and it ends once`() throws {
        for round in 0..<20 {
            let teardowns = Counter()
            let thread = try RunLoopThread(name: "many", setup: { _ in }, drain: { _, _ in }, teardown: { _, _ in teardowns.increment() })
            let started = Box(0)
            let broken = Box(0)
            let holders = (0..<4).map { _ in
                plainThread {
                    started.increment()
                    while true {  // ends: stop() ends the thread when there is a moment without holds
                        let hold = thread.hold()
                        guard hold.isValid else { return }
                        // While the hold is valid, the loop accepts work.
                        if !thread.runLoop.perform({ if teardowns.value > 0 { broken.increment() } }) { broken.increment() }
                        hold.release()
                        breathe()
                    }
                }
            }
            try waitUntil("round \(round): the holders have started") { started.value == 4 }
            thread.stop()
            // The holders may always hold between them, so the limit ends the thread if chance does not.
            thread.stop(drainingFor: .zero)
            #expect(thread.join(timeout: patience))
            for holder in holders { try holder.join() }
            #expect(teardowns.value == 1)
            // At the limit, a hold is valid although the loop refuses work. Otherwise the loop accepted everything.
            #expect(broken.value <= 4)
        }
    }

    #if os(Linux)
    @Test func `in a child of fork, holds of the parent have no effect`() async {
        await #expect(processExitsWith: .success) {
            let trace = Trace()
            let thread = try RunLoopThread(name: "parent's", setup: { _ in }, teardown: { _, _ in trace.add("teardown") })
            let hold = thread.hold()
            // In a debug build, a thread in its first pass may hold a lock of the Swift runtime, and no thread of the child releases it.
            try waitUntilAsleepAfterPass(thread.runLoop)
            let end = inForkedChild {
                hold.release()
                let late = thread.hold()
                thread.stop(drainingFor: .zero)
                return !hold.isValid && !late.isValid && thread.join() ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
            // The parent's hold is unaffected.
            thread.stop()
            #expect(hold.isValid && thread.runLoop.perform { trace.add("answer") })
            hold.release()
            #expect(await thread.join(timeout: patience))
            #expect(trace.description == "answer teardown")
        }
    }
    #endif

    // MARK: Stops and limits

    @Test func `a second stop changes nothing while the thread drains`() throws {
        let trace = Trace()
        let draining = Gate()
        let thread = try RunLoopThread(
            name: "twice", setup: { _ in },
            drain: { _, _ in
                trace.add("drain")
                draining.open()
            }, teardown: { _, _ in trace.add("teardown") })
        let hold = thread.hold()
        thread.stop()
        draining.wait()
        thread.stop()
        thread.runLoop.stop()
        #expect(thread.runLoop.perform { trace.add("answer") })
        #expect(!thread.join(timeout: .milliseconds(1)))
        hold.release()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "drain answer teardown")
    }

    @Test func `when the limit has passed in the loop's time, the thread ends although there are holds`() throws {
        let trace = Trace()
        let thread = try RunLoopThread(
            name: "limit", drainLimit: .seconds(3600),
            setup: { loop in
                // The clock jumps to the limit as soon as nothing is ready.
                let clock = RunLoop.ManualClock(autoAdvance: true)
                loop.use(clock)
                return clock
            },
            drain: { _, clock in trace.add("drain \(clock.ms)") },
            teardown: { loop, clock in trace.add("teardown \(clock.ms) \(loop.perform {})") })
        let hold = thread.hold()
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(hold.isValid)
        #expect(trace.description == "drain 0 teardown 3600000 false")
        hold.release()
        #expect(!hold.isValid)
    }

    @Test func `a later stop with a limit shortens the wait for holds`() throws {
        let draining = Gate()
        let thread = try RunLoopThread(
            name: "shorter", drainLimit: .seconds(1 << 40), setup: { _ in }, drain: { _, _ in draining.open() }, teardown: { _, _ in })
        let hold = thread.hold()
        thread.stop()
        draining.wait()
        #expect(try thread.runLoop.performAndWait { 42 } == 42)
        thread.stop(drainingFor: .zero)
        #expect(thread.join(timeout: patience))
        hold.release()
    }

    @Test func `a later stop does not lengthen the wait for holds`() throws {
        let thread = try RunLoopThread(name: "longer", drainLimit: .zero, setup: { _ in }, teardown: { _, _ in })
        let hold = thread.hold()
        thread.stop(drainingFor: .seconds(1 << 40))
        #expect(thread.join(timeout: patience))
        hold.release()
    }

    @Test func `a first stop with a limit of zero waits for no hold, and still drains`() throws {
        let trace = Trace()
        let thread = try RunLoopThread(
            name: "zero", setup: { _ in }, drain: { _, _ in trace.add("drain") }, teardown: { _, _ in trace.add("teardown") })
        let hold = thread.hold()
        thread.stop(drainingFor: .zero)
        #expect(thread.join(timeout: patience))
        hold.release()
        #expect(trace.description == "drain teardown")
    }

    @Test func `the log says how many holds were not released in time`() async {
        // The handler is global to the process.
        await #expect(processExitsWith: .success) {
            let trace = Trace()
            RunLoop.setLibeventLogHandler { _, message in trace.add(message) }
            let thread = try RunLoopThread(name: "leaky", drainLimit: .zero, setup: { _ in }, teardown: { _, _ in })
            let holds = [thread.hold(), thread.hold()]
            thread.stop()
            #expect(await thread.join(timeout: patience))
            #expect(trace.description.contains("\"leaky\" ends although 2 of its holds"), "\(trace)")
            for hold in holds { hold.release() }
        }
    }

    // MARK: Groups

    @Test func `the threads of a group drain at the same time, each with its own context`() throws {
        let (contexts, drained) = (Box<[String]>([]), Box(0))
        let draining = Gate()
        let group = try RunLoopThreadGroup(
            count: 3, name: "group",
            setup: { _ in Trace() },
            drain: { _, trace in
                trace.add("drain")
                if drained.increment() == 3 { draining.open() }
            },
            teardown: { _, trace in
                trace.add("teardown")
                contexts.change { $0.append(trace.description) }
            })
        let holds = group.runLoops.map { $0.holdThread() }
        let shutdown = plainThread { group.shutdown() }
        // All drain although none has ended.
        draining.wait()
        for loop in group.runLoops { #expect(try loop.performAndWait { 42 } == 42) }
        for hold in holds { hold.release() }
        try shutdown.join()
        #expect(contexts.value == Array(repeating: "drain teardown", count: 3))
    }

    @Test func `a group's shutdown reports how many holds a thread waits for`() throws {
        let group = try RunLoopThreadGroup(count: 2, name: "held", drainLimit: .seconds(1 << 40), setup: { _ in }, teardown: { _, _ in })
        let hold = group.runLoops[1].holdThread()
        let reported = Box(false)
        group.shutdown(reportingEvery: .milliseconds(1)) { text in
            guard text == "run loop thread \"held-1\" was asked to stop and waits for 1 hold\n" else { return }
            reported.value = true
            hold.release()
        }
        #expect(reported.value)
    }

    @Test func `a group's shutdown with a limit for draining waits for no hold longer than that`() throws {
        let group = try RunLoopThreadGroup(count: 2, drainLimit: .seconds(1 << 40), setup: { _ in }, teardown: { _, _ in })
        let holds = group.runLoops.map { $0.holdThread() }
        group.shutdown(drainingFor: .zero)
        #expect(group.runLoops.allSatisfy { !$0.isValid })
        for hold in holds { hold.release() }
    }
}
