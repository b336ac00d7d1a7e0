// Runs and the end of a loop that another loop drives (semantics 19).

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

#if os(Linux)
/// In a callout of the loop: steps first, and then runs its host until it has served what comes meanwhile.
private func stepAndRunHost(_ loop: RunLoop, _ host: PlainHost, _ trace: Trace) {
    #expect(throws: Never.self) {
        host.step()
        try plainThread { loop.perform { trace.add("post") } }.join()
        #expect(host.isReady)
        try host.stepUntilQuiet()
        loop.add(RunLoop.Timer(fireAt: .now) { _ in trace.add("timer") })
        try host.run("the timer") { trace.description == "post timer" }
    }
    trace.add("end")
}

@Suite(.bounded, .tags(.threads)) struct HostedRunTests {
    // MARK: Runs

    @Test func `an outermost run of a hosted mode traps and says why, also without an item`() async throws {
        let outcome = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in
                let hosted = try loop.hosted()
                _ = loop.run(for: .zero)
                withExtendedLifetime(hosted) {}
            }
        }
        #expect(String(decoding: try #require(outcome).standardErrorContent, as: UTF8.self).contains("only HostedLoop.step() runs it"))
    }

    @Test func `handlers run nested runs in any mode, and posts meanwhile are served there or by the next step`() throws {
        for mode in [RunLoop.Mode.default, "inner"] {
            try inHost { loop, host, trace in
                loop.addIdleSource()
                loop.addIdleSource(forMode: "inner")
                loop.perform {
                    let poster = plainThread {
                        try waitUntilAsleep(loop)
                        loop.perform(inModes: [.default]) { trace.add("default") }
                        loop.perform(inModes: ["inner"]) { trace.add("inner") }
                        loop.perform(inModes: [mode]) { loop.stop() }
                    }
                    #expect(loop.run(mode: mode, for: patience) == .stopped)
                    trace.add("|")
                    #expect(throws: Never.self) { try poster.join() }
                }
                host.step()
                try host.stepUntilQuiet()
                #expect(trace.list.contains("default") && trace.list.last == (mode == .default ? "|" : "default"), "\(trace)")
                #expect(!host.isReady)
            }
        }
    }

    @Test func `an outermost run of another mode leaves nothing of the hosted mode behind`() throws {
        try inHost { loop, host, trace in
            let pipe = Pipe()
            loop.add(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in trace.add(pipe.readAll()) })
            loop.addIdleSource(forMode: "other")
            let timer = RunLoop.Timer(fireAt: .now.advanced(by: .seconds(3_000))) { _ in trace.add("timer") }
            loop.add(timer)
            try host.stepUntilQuiet()
            loop.perform(inModes: ["other"]) {
                timer.nextFire = .now
                #expect(throws: Never.self) { try plainThread { loop.perform(inModes: [.default]) { trace.add("post") } }.join() }
                pipe.write("pipe")
                loop.stop()
            }
            #expect(loop.run(mode: "other", for: patience) == .stopped)
            #expect(trace.take() == "")
            #expect(host.isReady)
            try host.stepUntilQuiet()
            #expect(trace.list.sorted() == ["pipe", "post", "timer"])
            try plainThread { loop.perform { trace.add("later") } }.join()
            #expect(host.isReady)
        }
    }

    @Test func `a source that another mode serves often keeps the hosted mode's descriptor right`() throws {
        try inHost { loop, host, trace in
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                pipe.readAll()
                trace.add("x")
            }
            for mode in [RunLoop.Mode.default, "other"] { loop.add(source, forMode: mode) }
            try host.stepUntilQuiet()
            for _ in 0..<100 {
                pipe.write()
                _ = loop.run(mode: "other", for: .zero)
            }
            #expect(trace.list.count == 100)
            pipe.write()
            #expect(host.isReady)
            host.step()
            #expect(trace.list.count == 101)
        }
    }

    @Test func `two modes of a loop can be hosted at once, and each step serves its own`() throws {
        try inHost { loop, host, trace in
            let other = try PlainHost(loop, mode: "other", .epoll)
            for mode in [RunLoop.Mode.default, "other"] { loop.addIdleSource(forMode: mode) }
            try host.stepUntilQuiet()
            try other.stepUntilQuiet()
            try plainThread {
                loop.perform(inModes: ["other"]) { trace.add("other") }
                loop.perform(inModes: [.default]) { trace.add("default") }
            }.join()
            #expect(host.isReady && other.isReady)
            host.step()
            #expect(trace.take() == "default")
            #expect(other.isReady)
            other.step()
            #expect(trace.take() == "other")

            // What a step of one mode does for the other one is noticed.
            let timer = RunLoop.Timer.onDemand { _ in trace.add("timer") }
            loop.add(timer, forMode: "other")
            loop.perform(inModes: [.default]) {
                timer.nextFire = .now
                #expect(throws: Never.self) { try plainThread { loop.perform(inModes: ["other"]) { trace.add("post") } }.join() }
            }
            try host.stepUntilQuiet()
            try other.run("both") { trace.list.sorted() == ["post", "timer"] }
            try host.stepUntilQuiet()
            try other.stepUntilQuiet()
            #expect(!host.isReady && !other.isReady)
            other.hosted.invalidate()
            try plainThread { loop.perform { trace.add("more") } }.join()
            #expect(host.isReady, "the first is hosted still")
        }
    }

    @Test func `a mode that is hosted, or running, cannot be hosted again`() async throws {
        let twice = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in
                let first = try loop.hosted(mode: "a")
                _ = try loop.hosted(mode: "a")
                withExtendedLifetime(first) {}
            }
        }
        #expect(String(decoding: try #require(twice).standardErrorContent, as: UTF8.self).contains("hosted already"))
        let running = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in
                loop.perform { _ = try? RunLoop.current.hosted() }
                _ = loop.run(for: .zero)
            }
        }
        #expect(String(decoding: try #require(running).standardErrorContent, as: UTF8.self).contains("in progress"))
    }

    @Test func `a host that runs inside a handler is served as one outside`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            loop.addIdleSource(forMode: "hosted")
            loop.perform {
                #expect(throws: Never.self) {
                    let host = try PlainHost(RunLoop.current, mode: "hosted")
                    try host.stepUntilQuiet()
                    let timer = RunLoop.Timer(fireAt: .now.advanced(by: .seconds(3_000))) { _ in trace.add("timer") }
                    loop.add(timer, forMode: "hosted")
                    #expect(!host.isReady)
                    try plainThread { loop.perform(inModes: ["hosted"]) { trace.add("post") } }.join()
                    #expect(host.isReady)
                    try host.stepUntilQuiet()
                    timer.nextFire = .now
                    try host.run("the timer") { trace.description == "post timer" }
                    loop.addIdleSource(forMode: "other")
                    _ = loop.run(mode: "other", for: .milliseconds(1))
                    try plainThread { loop.perform(inModes: ["hosted"]) { trace.add("more") } }.join()
                    #expect(host.isReady)
                    try host.stepUntilQuiet()
                }
            }
            loop.perform { loop.stop() }
            #expect(loop.run(for: patience) == .stopped)
            #expect(trace.take() == "post timer more")
        }
    }

    @Test func `a handler that calls step first may run its host`() throws {
        try inHost { loop, host, trace in
            loop.addIdleSource()
            loop.perform {
                stepAndRunHost(loop, host, trace)
            }
            try host.stepUntilQuiet()
            #expect(trace.take() == "post timer end")
            try plainThread { loop.perform { trace.add("later") } }.join()
            #expect(host.isReady)
        }
    }

    @Test func `a last callout that is made before the loop sleeps in its host may run its host`() throws {
        try inHost { loop, host, trace in
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            source.onInvalidation {
                stepAndRunHost(loop, host, trace)
            }
            loop.add(source)
            loop.addIdleSource()
            try host.stepUntilQuiet()
            // After the last step of the run: the loop ends the source when it prepares to sleep in its host.
            loop.atFirst(.exit) {
                #expect(throws: Never.self) { try plainThread { source.invalidate() }.join() }
            }
            host.step()
            #expect(trace.take() == "post timer end")
            try plainThread { loop.perform { trace.add("later") } }.join()
            #expect(host.isReady)
            try host.stepUntilQuiet()
            #expect(trace.take() == "later")
        }
    }

    @Test func `between two steps a change that calls nobody leaves the last callouts of others to the next step`() throws {
        try inHost { loop, host, trace in
            let (pipe, other) = (Pipe(), Pipe())
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            loop.add(source)
            let timer = RunLoop.Timer.onDemand { _ in }
            loop.add(timer)
            // A stream makes both under its lock.
            let changes: [@Sendable () -> Void] = [
                { source.setEventsWithoutCallout([]) }, { timer.nextFire = .now.advanced(by: .seconds(3_000)) },
            ]
            for change in changes {
                let ending = try RunLoop.DescriptorSource(descriptor: other.readEnd, events: .read) { _, _ in }
                ending.onInvalidation { trace.add("ended") }
                loop.add(ending)
                try host.stepUntilQuiet()
                try plainThread { ending.invalidate() }.join()
                change()
                trace.add("|")
                #expect(host.isReady)
                try host.stepUntilQuiet()
            }
            #expect(trace.take() == "| ended | ended")
        }
    }

    @Test func `a run finds what was queued for its mode during a step in one of its handlers`() throws {
        try onFreshThread { loop in
            let host = try PlainHost(loop, mode: "hosted")
            loop.addIdleSource()
            loop.perform(inModes: [.default]) {
                loop.perform(inModes: ["hosted"]) { loop.perform(inModes: [.default]) { loop.stop() } }
                host.step()
            }
            #expect(loop.run(for: patience) == .stopped)
            host.hosted.invalidate()
        }
    }

    @Test func `a run of another mode finds what was queued for it before the loop slept in its host`() throws {
        try inHost { loop, _, trace in
            loop.addIdleSource(forMode: "other")
            _ = loop.run(mode: "other", for: .zero)
            loop.perform(inModes: ["other"]) { trace.add("post") }
            // The loop prepares to sleep in its host, and looks for work of the hosted mode only.
            loop.add(RunLoop.Timer(after: patience) { _ in })
            _ = loop.run(mode: "other", for: .zero)
            #expect(trace.take() == "post")
        }
    }

    @Test func `a step finds what was queued for its mode before the loop looked for work of another hosted mode`() throws {
        try inHost { loop, host, trace in
            let other = try PlainHost(loop, mode: "other")
            for mode in [RunLoop.Mode.default, "other"] { loop.addIdleSource(forMode: mode) }
            try other.stepUntilQuiet()
            host.step()
            try host.stepUntilQuiet()
            loop.perform(inModes: [.default]) { trace.add("post") }
            loop.add(RunLoop.Timer(after: patience) { _ in }, forMode: "other")
            try host.stepUntilQuiet()
            #expect(trace.take() == "post")
            other.hosted.invalidate()
        }
    }

    @Test func `what a run of another mode has passed over is a reason to step when its mode is hosted`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            for mode in [RunLoop.Mode.default, "other"] { loop.addIdleSource(forMode: mode) }
            loop.perform(inModes: [.default]) { trace.add("post") }
            _ = loop.run(mode: "other", for: .zero)
            let host = try PlainHost(loop)
            #expect(host.isReady)
            host.step()
            #expect(trace.take() == "post")
            host.hosted.invalidate()
        }
    }

    @Test func `a hosted mode keeps its work when another one is hosted no more`() throws {
        try inHost { loop, host, trace in
            let other = try PlainHost(loop, mode: "other")
            for mode in [RunLoop.Mode.default, "other"] { loop.addIdleSource(forMode: mode) }
            try other.stepUntilQuiet()
            loop.add(RunLoop.Timer(after: .zero) { _ in loop.perform(inModes: [.default]) { trace.add("post") } }, forMode: "other")
            try host.stepUntilQuiet()
            // At its end the loop looks for work of one mode after the other.
            other.step()
            other.hosted.invalidate()
            #expect(host.isReady)
            host.step()
            #expect(trace.take() == "post")
        }
    }

    @Test func `after its thread was stopped a step returns stopped, and the thread ends when the host has ended`() throws {
        let thread = try RunLoopThread(name: "host")
        let trace = Trace()
        thread.runLoop.perform {
            #expect(throws: Never.self) {
                let host = try PlainHost(RunLoop.current, mode: "hosted")
                RunLoop.current.addIdleSource(forMode: "hosted")
                RunLoop.current.performBlock(inModes: ["hosted"]) { trace.add("block") }
                thread.stop()
                while host.step() != .stopped { trace.add("not stopped") }  // ends: the thread was stopped
                host.hosted.invalidate()
            }
        }
        #expect(thread.join(timeout: patience))
        #expect(trace.description == "block", "it is performed in the last batch")
    }

    // MARK: Modes without items

    @Test func `an empty hosted mode is finished and quiet, whatever wakes the loop`() throws {
        try inHost { loop, host, trace in
            #expect(!host.isReady)
            #expect(host.step() == .finished)
            loop.wakeUp()
            #expect(host.isReady)
            #expect(host.step() == .finished)
            #expect(!host.isReady)
            try plainThread { loop.perform(inModes: ["other"]) {} }.join()
            try host.stepUntilQuiet()
            #expect(!host.isReady)
            loop.perform { trace.add("post") }
            #expect(host.step() == .timedOut || host.step() == .finished)
            try host.stepUntilQuiet()
            #expect(trace.take() == "post")
        }
    }

    @Test func `a step that empties its mode leaves the descriptor quiet`() throws {
        try inHost { loop, host, trace in
            let source = loop.addIdleSource()
            try host.stepUntilQuiet()
            try plainThread {
                loop.performBlock {
                    trace.add("block")
                    source.invalidate()
                }
            }.join()
            #expect(host.isReady)
            host.step()
            #expect(trace.take() == "block")
            #expect(!host.isReady)
            try plainThread { loop.perform { trace.add("post") } }.join()
            #expect(host.isReady)
            host.step()
            #expect(trace.take() == "post")
            #expect(!host.isReady)
        }
    }

    @Test func `a step of an empty mode inside a handler leaves the outer run its wake-up`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let host = try PlainHost(loop, mode: "hosted")
            loop.addIdleSource()
            loop.performBlock {
                loop.wakeUp()
                #expect(host.step() == .finished)
            }
            // The wake-up ends the first sleep at once.
            loop.add(
                RunLoop.Observer(activities: .beforeTimers) { _, _ in
                    trace.add("pass")
                    if trace.list.count == 2 { loop.stop() }
                })
            loop.add(RunLoop.Timer(after: patience) { _ in Issue.record("the wake-up was lost") })
            #expect(loop.run(for: .seconds(60)) == .stopped)
            #expect(trace.description == "pass pass")
            host.hosted.invalidate()
        }
    }

    @Test func `the last callout of an item that the owner ends between two steps is made at once`() throws {
        try inHost { loop, host, trace in
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            source.onInvalidation { trace.add("ended") }
            loop.add(source)
            try host.stepUntilQuiet()
            source.invalidate()
            #expect(trace.take() == "ended")
            let other = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            other.onInvalidation { trace.add("ended elsewhere") }
            loop.add(other)
            try plainThread { other.invalidate() }.join()
            try host.run("the last callout") { !trace.list.isEmpty }
        }
    }

    // MARK: Actors

    @Test func `jobs of an actor on a hosted loop run in its steps`() async throws {
        let hosting = joinableThread { loop -> Int in
            let host = try PlainHost(loop, .epoll)
            defer { host.hosted.invalidate() }
            loop.addIdleSource()
            let actor = HostedActor(loop)
            let result = Box(0)
            // Not on the pool, whose threads the tests block.
            Task(executorPreference: loop) {
                result.value = await actor.count(to: 1_000)
                loop.wakeUp()
            }
            try host.run("an actor's calls") { result.value != 0 }
            return result.value
        }
        #expect(try hosting.join() == 1_000)
    }

    // MARK: The end

    @Test func `after invalidate the loop is its thread's again`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let hosted = try loop.hosted()
            #expect(hosted.descriptor >= 0)
            hosted.invalidate()
            hosted.invalidate()
            #expect(hosted.descriptor == -1 && hosted.nextDeadline == nil)
            loop.perform { trace.add("run") }
            #expect(loop.run(for: .zero) == .timedOut || !trace.list.isEmpty)
            #expect(trace.take() == "run")
            // Another one, and that one is only released.
            _ = try loop.hosted()
            #expect(loop.run(for: .zero) == .finished)
            let again = try PlainHost(loop)
            try plainThread { loop.perform { trace.add("again") } }.join()
            #expect(again.isReady)
            again.step()
            #expect(trace.take() == "again")
        }
    }

    @Test func `a handler may invalidate the hosted loop that calls it`() throws {
        try onFreshThread { loop in
            let host = try PlainHost(loop)
            loop.addIdleSource()
            loop.perform { host.hosted.invalidate() }
            #expect(host.step() == .timedOut)
            #expect(host.hosted.descriptor == -1)
            #expect(loop.run(for: .zero) == .timedOut)
        }
    }

    @Test func `a step after invalidate, or on another thread, traps and says so`() async throws {
        let after = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in
                let hosted = try loop.hosted()
                hosted.invalidate()
                hosted.step()
            }
        }
        #expect(String(decoding: try #require(after).standardErrorContent, as: UTF8.self).contains("HostedLoop was invalidated"))
        let elsewhere = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in
                nonisolated(unsafe) let hosted = try loop.hosted()  // SAFETY: the call traps
                try plainThread { _ = hosted.step() }.join()
            }
        }
        #expect(String(decoding: try #require(elsewhere).standardErrorContent, as: UTF8.self).contains("another thread"))
    }

    @Test func `when the loop's thread ends the descriptor falls silent, and a step is finished`() throws {
        nonisolated(unsafe) let hosted = try joinableHostedLoop()  // SAFETY: its thread has ended
        #expect(hosted.descriptor >= 0)
        #expect(!isReadable(hosted.descriptor))
        #expect(hosted.step() == .finished)
        #expect(hosted.nextDeadline == nil)
        hosted.invalidate()
        #expect(hosted.descriptor == -1)
    }

    // MARK: The kernel

    @Test func `the descriptor survives a new base`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let pipe = Pipe()
            let kept = loop.keepAlive()
            defer { kept.cancel() }
            try leaveFileBehind(of: pipe, number: 781, in: loop)
            let host = try PlainHost(loop, .epoll)
            pipe.write("x")
            let other = Pipe()
            loop.add(try RunLoop.DescriptorSource(descriptor: other.readEnd, events: .read) { _, _ in trace.add(other.readAll()) })
            // The host spins until the sweep finds what was left behind.
            try host.stepUntilQuiet()
            other.write("a")
            #expect(host.isReady)
            try host.stepUntilQuiet()
            loop.add(RunLoop.Timer(fireAt: .now) { _ in trace.add("timer") })
            try host.run("the timer") { trace.description == "a timer" }
            try plainThread { loop.perform { trace.add("post") } }.join()
            #expect(host.isReady)
            try host.stepUntilQuiet()
            #expect(trace.take() == "a timer post")
        }
    }

    @Test func `without descriptors a loop cannot be hosted, and one that is hosted is served`() async {
        await #expect(processExitsWith: .success) {
            try onFreshThread { loop in
                let trace = Trace()
                let pipe = Pipe()
                loop.add(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in trace.add(pipe.readAll()) })
                let host = try PlainHost(loop)
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(7), &limit)  // RLIMIT_NOFILE
                let before = limit.rlim_cur
                // A leak detector needs descriptors when the process exits.
                defer {
                    limit.rlim_cur = before
                    setrlimit(__rlimit_resource_t(7), &limit)
                }
                limit.rlim_cur = 1  // poll(2) takes no more entries than that
                setrlimit(__rlimit_resource_t(7), &limit)
                #expect(throws: RunLoop.SourceError.system(operation: "making a descriptor for a hosted run loop", errno: EMFILE)) {
                    _ = try loop.hosted(mode: "other")
                }
                pipe.write("a")
                loop.perform { trace.add("post") }
                loop.add(RunLoop.Timer(fireAt: .now) { _ in trace.add("timer") })
                try host.stepUntilQuiet()
                #expect(trace.list.sorted() == ["a", "post", "timer"])
                #expect(loop.run(mode: "other", for: .zero) == .finished, "nothing was left of the refused one")
            }
        }
    }

    @Test func `where libevent waits without a descriptor of its own, hosting is refused`() async {
        await #expect(processExitsWith: .success) {
            setenv("EVENT_NOEPOLL", "1", 1)
            try onFreshThread { loop in
                do throws(RunLoop.SourceError) {
                    _ = try loop.hosted()
                    Issue.record("hosted")
                } catch {
                    #expect(error == .system(operation: "finding the kernel's set of an event base that waits with poll", errno: ENOTSUP))
                }
                loop.perform { loop.stop() }
                #expect(loop.run(for: patience) == .stopped)
            }
        }
    }
}

private func joinableHostedLoop() throws -> RunLoop.HostedLoop {
    let box = Locked<RunLoop.HostedLoop?>(nil)
    try onFreshThread { loop in
        let hosted = try loop.hosted()
        nonisolated(unsafe) let moved = hosted  // SAFETY: the thread does not use it any more
        box.withLock { $0 = moved }
    }
    return box.withLock { $0! }
}

private actor HostedActor {
    private let loop: RunLoop
    private var number = 0
    init(_ loop: RunLoop) { self.loop = loop }
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    func count(to limit: Int) async -> Int {
        while number < limit {  // ends: at the limit
            await Task.yield()
            number += 1
        }
        return number
    }
}
#endif
