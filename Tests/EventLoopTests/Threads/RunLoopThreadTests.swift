// RunLoopThread (API; semantics 9.16 to 9.22):
//  - `setup` runs first on the thread; if it throws, init throws its error and the thread has ended. `teardown` runs last on the thread,
//    after its run has ended and before its loop ends.
//  - stop is never lost, however early it comes; runLoop.stop() ends only a run, and the thread runs its loop again.
//  - Work accepted before stop is performed in one last batch before teardown; later work is refused (false, RunLoopEnded).
//  - join blocks until the thread has ended, and returns false if its timeout passes first; on the thread itself it is a precondition
//    failure.
//  - A dropped RunLoopThread keeps running.

import CLibevent
import CPlatform
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct RunLoopThreadTests {
    private struct Refused: Error, Equatable { let reason: Int }

    // MARK: Lifetime

    @Test func `setup runs first and teardown runs last, on the thread and with its loop`() throws {
        let trace = Trace()
        let thread = try RunLoopThread(
            name: "life",
            setup: { loop in trace.add("setup \(loop.isCurrent) \(loop.isValid) \(loop.runDepth)") },
            teardown: { loop in
                trace.add("teardown \(loop.isCurrent) \(loop.isValid) \(loop.runDepth) \(loop.currentMode == nil)")
            })
        try thread.runLoop.performAndWait { trace.add("work \(thread.runLoop.isCurrent) \(thread.runLoop.runDepth)") }
        thread.stop()
        trace.add("joined \(thread.join()) \(thread.runLoop.isValid)")
        #expect(
            trace.list == [
                "setup true true 0", "work true 1", "teardown true true 0 true", "joined true false",
            ])
    }

    @Test func `init throws the error of setup after the thread has ended`() throws {
        let trace = Trace()
        let loop = Box<RunLoop?>(nil)
        #expect(throws: Refused(reason: 7)) {
            let canary = Canary { trace.add("released") }
            _ = try RunLoopThread(
                name: "refused",
                setup: { [canary] own in
                    withExtendedLifetime(canary) { loop.value = own }
                    throw Refused(reason: 7)
                })
        }
        #expect(loop.value?.isValid == false)
        #expect(trace.description == "released")
    }

    @Test func `the system shows the thread's name where the platform supports it`() throws {
        let thread = try RunLoopThread(name: "fourteen-bytes")
        defer {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        let native = try thread.runLoop.performAndWait { currentThreadName() }
        #expect(thread.name == "fourteen-bytes")
        #expect(native == "fourteen-bytes")
    }

    @Test func `a name longer than the platform's limit is kept, and truncated for the platform`() throws {
        let thread = try RunLoopThread(name: "a name much longer than fifteen bytes")
        defer {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        let native = try thread.runLoop.performAndWait { currentThreadName() }
        #expect(thread.name == "a name much longer than fifteen bytes")
        #expect(!native.isEmpty && thread.name.hasPrefix(native), "\(native)")
    }

    #if os(Linux)
    @Test func `the stack has the requested size`() throws {
        let megabytes = 16
        let thread = try RunLoopThread(name: "stack", stackSize: megabytes << 20)
        defer {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        let size = try thread.runLoop.performAndWait { stackSizeOfThisThread() }
        #expect(size >= megabytes << 20)
    }
    #endif

    @Test func `the loop belongs to the thread, and runs although it has no items`() throws {
        let thread = try RunLoopThread(name: "empty")
        defer {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        #expect(try thread.runLoop.performAndWait { RunLoop.current === thread.runLoop })
        try waitUntilAsleep(thread.runLoop)
        #expect(thread.runLoop.currentMode == .default)
        #expect(try thread.runLoop.performAndWait { thread.runLoop.runDepth } == 1)
    }

    @Test func `a dropped RunLoopThread keeps running`() async {
        // In a process of its own, because no code can stop that thread any more.
        await #expect(processExitsWith: .success) {
            func start() throws -> RunLoop { try RunLoopThread(name: "dropped").runLoop }
            let loop = try start()
            for _ in 0..<3 {
                let answer = try await loop.performAsync { 42 }
                #expect(answer == 42)
            }
            #expect(loop.isValid)
        }
    }

    // MARK: stop

    @Test func `a stop immediately after init is not lost`() throws {
        for round in 0..<500 {
            let thread = try RunLoopThread(name: "early")
            thread.stop()
            #expect(thread.join(timeout: patience), "round \(round)")
        }
    }

    @Test func `a stop from the thread itself is not lost, and ends it after the pass in progress`() throws {
        let trace = Trace()
        let thread = Box<RunLoopThread?>(nil)
        thread.value = try RunLoopThread(name: "self", teardown: { _ in trace.add("teardown") })
        thread.value!.runLoop.perform {
            thread.value!.stop()
            trace.add("stopped")
        }
        #expect(thread.value!.join(timeout: patience))
        #expect(trace.description == "stopped teardown")
    }

    @Test func `stopping a thread twice or after its end does nothing`() throws {
        let thread = try RunLoopThread(name: "twice")
        thread.stop()
        thread.stop()
        #expect(thread.join())
        thread.stop()
        #expect(thread.join())
        #expect(thread.join(timeout: .zero))
    }

    @Test func `a stop unwinds nested runs`() throws {
        let trace = Trace()
        let nested = Box(false)
        let thread = try RunLoopThread(name: "nested")
        thread.runLoop.perform {
            let alive = thread.runLoop.keepAlive(forMode: "nested")
            thread.runLoop.performBlock(inModes: ["nested"]) { nested.value = true }
            trace.add("nested \(thread.runLoop.run(mode: "nested", for: patience))")
            alive.cancel()
        }
        try waitUntil { nested.value }
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "nested stopped")
    }

    @Test func `runLoop stop ends only a run, and the thread runs its loop again`() throws {
        let trace = Trace()
        let thread = try RunLoopThread(name: "again", setup: { loop in trace.observe(loop) })
        for _ in 0..<3 {
            thread.runLoop.stop()
            try thread.runLoop.performAndWait { trace.add("work") }
        }
        thread.runLoop.stop()
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(trace.list.filter { $0 == "work" }.count == 3)
        #expect(!thread.runLoop.isValid)
    }

    @Test func `runLoop stop in a callout starts a new run and does not end the thread`() throws {
        let trace = Trace()
        let thread = try RunLoopThread(
            name: "entry",
            setup: { loop in
                loop.add(RunLoop.Observer(activities: [.entry, .exit]) { _, activity in trace.add(letter(of: activity)) })
            })
        try thread.runLoop.performAndWait { thread.runLoop.stop() }
        try thread.runLoop.performAndWait { trace.add("work") }
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "E X E work X")
    }

    // MARK: The last batch

    @Test func `work accepted before stop is performed before teardown, and later work is refused`() throws {
        let trace = Trace()
        let (entered, gate) = (Gate(), Gate())
        let thread = try RunLoopThread(name: "batch", teardown: { _ in trace.add("teardown") })
        let loop = thread.runLoop
        loop.perform {
            entered.open()
            gate.wait()
            trace.add("busy")
        }
        entered.wait()
        let accepted = [
            loop.perform { trace.add("perform") },
            loop.perform(inModes: ["elsewhere"]) { trace.add("elsewhere") },
            loop.performBlock { trace.add("block") },
        ]
        thread.stop()
        let refused = [
            loop.perform { trace.add("late") },
            loop.performBlock { trace.add("late") },
        ]
        #expect(throws: RunLoopEnded.self) { try loop.performAndWait { trace.add("late") } }
        gate.open()
        #expect(thread.join(timeout: patience))
        #expect(accepted == [true, true, true])
        #expect(refused == [false, false])
        #expect(trace.list.first == "busy" && trace.list.last == "teardown", "\(trace)")
        #expect(trace.list.dropFirst().dropLast().sorted() == ["block", "elsewhere", "perform"], "\(trace)")
    }

    @Test func `the performs of the last batch keep their order`() throws {
        let trace = Trace()
        let (entered, gate) = (Gate(), Gate())
        let thread = try RunLoopThread(name: "order")
        thread.runLoop.perform {
            entered.open()
            gate.wait()
        }
        entered.wait()
        for number in 0..<5 { thread.runLoop.perform { trace.add("\(number)") } }
        thread.stop()
        gate.open()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "0 1 2 3 4")
    }

    @Test func `a perform that the last batch requests is refused`() throws {
        let trace = Trace()
        let (entered, gate) = (Gate(), Gate())
        let thread = try RunLoopThread(name: "one batch", teardown: { _ in trace.add("teardown") })
        let loop = thread.runLoop
        loop.perform {
            entered.open()
            gate.wait()
        }
        entered.wait()
        loop.perform { trace.add("more \(loop.perform { trace.add("late") })") }
        thread.stop()
        gate.open()
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "more false teardown")
    }

    @Test func `every performAndWait during the stop returns its value or throws RunLoopEnded`() throws {
        for round in 0..<50 {
            let thread = try RunLoopThread(name: "waiters")
            let started = Box(0)
            let waiters = (0..<4).map { number in
                plainThread {
                    started.increment()
                    do {
                        return try thread.runLoop.performAndWait { number } == number
                    } catch {
                        return error is RunLoopEnded
                    }
                }
            }
            try waitUntil { started.value >= round % 5 }
            thread.stop()
            #expect(try waiters.map { try $0.join() } == [true, true, true, true], "round \(round)")
            #expect(thread.join(timeout: patience))
        }
    }

    @Test func `an ended loop refuses all work, and calls to it are safe`() throws {
        let thread = try RunLoopThread(name: "ended")
        let loop = thread.runLoop
        thread.stop()
        #expect(thread.join(timeout: patience))
        loop.stop()
        loop.stop(sticky: true)
        loop.wakeUp()
        let pipe = Pipe()
        let refused = [
            loop.isValid, loop.isWaiting, loop.isCurrent,
            loop.perform {}, loop.performBlock {}, loop.perform(after: .zero) {}.isValid,
            loop.add(RunLoop.Timer(fireAt: .now) { _ in }),
            loop.add(RunLoop.Observer(activities: .all) { _, _ in }),
            loop.add(RunLoop.CustomSource(perform: {})),
            loop.add(try readSource(pipe) { _ in }),
        ]
        #expect(refused == Array(repeating: false, count: refused.count))
        #expect(throws: RunLoopEnded.self) { try loop.performAndWait {} }
        #expect(loop.currentMode == nil && loop.runDepth == 0 && loop.nextTimerFire() == nil)
    }

    // MARK: join

    @Test func `join with a timeout reports in real time whether the thread has ended`() throws {
        let (entered, gate) = (Gate(), Gate())
        let thread = try RunLoopThread(name: "busy", setup: { loop in loop.use(RunLoop.ManualClock()) })
        thread.runLoop.perform {
            entered.open()
            gate.wait()
        }
        entered.wait()
        thread.stop()
        let start = ContinuousClock.now
        #expect(thread.join(timeout: .milliseconds(10)) == false)
        #expect(start.duration(to: .now) >= .milliseconds(10))
        gate.open()
        #expect(thread.join(timeout: patience))
    }

    @Test func `several threads may join`() throws {
        let thread = try RunLoopThread(name: "joined")
        let waiters = (0..<3).map { _ in plainThread { thread.join(timeout: patience) } }
        thread.stop()
        #expect(try waiters.map { try $0.join() } == [true, true, true])
    }

    @Test func `join returns after teardown has run and the loop has ended`() throws {
        for _ in 0..<50 {
            let done = Box(false)
            let thread = try RunLoopThread(
                name: "order",
                teardown: { _ in
                    for _ in 0..<100 { sched_yield() }
                    done.value = true
                })
            thread.stop()
            thread.join()
            #expect(done.value && !thread.runLoop.isValid)
        }
    }

    @Test func `join from the thread itself traps with a message`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "itself")
            thread.runLoop.perform { thread.join() }
            await thread.join()
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("join"), "\(errors)")
    }
}

// glibc's header declares these two functions only with _GNU_SOURCE, so Swift does not see them.
@_silgen_name("pthread_getname_np")
private func threadName(_ thread: pthread_t, _ name: UnsafeMutablePointer<CChar>, _ size: Int) -> Int32
@_silgen_name("pthread_getattr_np")
private func threadAttributes(_ thread: pthread_t, _ attributes: UnsafeMutablePointer<pthread_attr_t>) -> Int32

#if os(Linux)
func stackSizeOfThisThread() -> Int {
    var attributes = pthread_attr_t()
    var size = 0
    _ = threadAttributes(pthread_self(), &attributes)
    pthread_attr_getstacksize(&attributes, &size)
    pthread_attr_destroy(&attributes)
    return size
}
#endif

private func currentThreadName() -> String {
    var name = [CChar](repeating: 0, count: 64)
    _ = threadName(pthread_self(), &name, name.count)
    return String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
}
