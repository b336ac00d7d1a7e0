// A loop that another loop drives (semantics 19): what makes the host's descriptor readable, and what a step does.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

#if os(Linux)
@Suite(.bounded, .tags(.threads)) struct HostedLoopTests {
    // MARK: What makes the descriptor readable

    @Test(arguments: HostKind.allCases) func `a hosted loop without work is quiet, and a step changes nothing`(_ kind: HostKind) throws {
        try inHost(kind) { loop, host, _ in
            loop.addIdleSource()
            try host.stepUntilQuiet()
            #expect(!host.isReady)
            #expect(host.step() == .timedOut)
            #expect(!host.isReady)
            #expect(host.hosted.nextDeadline == nil)
        }
    }

    @Test func `a step is one pass that does not sleep, as a run with a limit of zero`() throws {
        try inHost { loop, host, trace in
            loop.addIdleSource()
            trace.observe(loop)
            loop.perform { trace.add("post") }
            #expect(host.step() == .timedOut)
            #expect(trace.take() == "E T S post X")
            #expect(host.step() == .timedOut)
            #expect(trace.take() == "E T S X")
        }
    }

    @Test(arguments: HostKind.allCases) func `a post from another thread makes the descriptor readable until a step`(_ kind: HostKind)
        throws
    {
        try inHost(kind) { loop, host, trace in
            loop.addIdleSource()
            try host.stepUntilQuiet()
            try plainThread { loop.perform { trace.add("posted") } }.join()
            #expect(host.isReady && host.isReady, "it is level-triggered")
            host.step()
            #expect(trace.take() == "posted")
            #expect(!host.isReady)
        }
    }

    @Test func `between two steps the loop counts as asleep, and several posts write once`() throws {
        try inHost { loop, host, trace in
            loop.addIdleSource()
            try host.stepUntilQuiet()
            let seen = try plainThread { () -> [Bool] in
                let before = loop.isWaiting
                for number in 1...3 { loop.perform { trace.add("\(number) \(loop.isWaiting)") } }
                return [before, loop.isWaiting]
            }.join()
            #expect(seen == [true, true])
            let woken = loop.statistics.wakeUps
            host.step()
            #expect(trace.take() == "1 false 2 false 3 false")
            #expect(loop.statistics.wakeUps == woken + 1)
            #expect(!host.isReady)
        }
    }

    @Test func `wakeUp, a queued block and a signaled source make the descriptor readable, from any thread`() throws {
        try inHost { loop, host, trace in
            let source = RunLoop.CustomSource { trace.add("source") }
            loop.add(source)
            try host.stepUntilQuiet()
            let causes: [@Sendable () -> Void] = [
                { loop.wakeUp() }, { loop.performBlock { trace.add("block") } }, { source.signal() },
            ]
            for cause in causes {
                cause()
                #expect(host.isReady)
                try host.stepUntilQuiet()
                trace.add("|")
                try plainThread { cause() }.join()
                #expect(host.isReady)
                try host.stepUntilQuiet()
                trace.add("|")
            }
            #expect(trace.take() == "| | block | block | source | source |")
        }
    }

    @Test func `a sticky stop makes the descriptor readable, and the next step returns stopped`() throws {
        try inHost { loop, host, _ in
            loop.addIdleSource()
            try host.stepUntilQuiet()
            loop.stop()
            #expect(!host.isReady, "without a run, an ordinary stop does nothing")
            try plainThread { loop.stop(sticky: true) }.join()
            #expect(host.isReady)
            #expect(host.step() == .stopped)
            #expect(try host.stepUntilQuiet() <= 1)
            #expect(host.step() == .timedOut)
        }
    }

    @Test func `a stop in a handler ends that step and nothing else`() throws {
        try inHost { loop, host, _ in
            loop.addIdleSource()
            loop.perform { loop.stop() }
            #expect(host.step() == .stopped)
            #expect(host.step() == .timedOut)
        }
    }

    @Test(arguments: HostKind.allCases) func `a readable pipe makes the descriptor readable until its handler has read`(_ kind: HostKind)
        throws
    {
        try inHost(kind) { loop, host, trace in
            let pipe = Pipe()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in trace.add(pipe.readAll()) }
            loop.add(source)
            try host.stepUntilQuiet()
            pipe.write("a")
            #expect(host.isReady)
            host.step()
            #expect(trace.take() == "a")
            #expect(!host.isReady)
            pipe.write("b")
            #expect(host.isReady)
            source.invalidate()
            #expect(!host.isReady, "the kernel does not watch it any more")
        }
    }

    @Test func `an edge that a step leaves to the next one keeps the descriptor readable`() throws {
        try inHost { loop, host, trace in
            let pipes = [Pipe(), Pipe()]
            for (pipe, priority) in zip(pipes, [RunLoop.Priority.low, .high]) {
                let source = try RunLoop.DescriptorSource(
                    descriptor: pipe.readEnd, events: .read, trigger: .edge, priority: priority
                ) { _, _ in trace.add("\(priority == .high ? "high" : "low") \(pipe.readAll())") }
                loop.add(source)
            }
            let timer = RunLoop.Timer(fireAt: .now) { _ in trace.add("timer") }
            loop.add(timer)
            for pipe in pipes { pipe.write("x") }
            try host.stepUntilQuiet()
            #expect(Set(trace.list) == ["timer", "high x", "low x"])
        }
    }

    @Test func `a signal and the exit of a child make the descriptor readable`() async {
        await #expect(processExitsWith: .success) {
            try inHost { loop, host, trace in
                let source = try RunLoop.SignalSource(signal: SIGUSR1) { _, count in trace.add("signal \(count)") }
                loop.add(source)
                try host.stepUntilQuiet()
                kill(getpid(), SIGUSR1)
                try host.run("a signal") { trace.description == "signal 1" }
                let child = Child("/bin/true", [])
                let exit = try RunLoop.ProcessSource(pid: child.pid) { _, status in trace.add("\(status == .exited(0))") }
                loop.add(exit)
                try host.run("a child's exit") { trace.description == "signal 1 true" }
            }
        }
    }

    @Test func `a message to a port makes the descriptor readable`() throws {
        try inHost { loop, host, trace in
            let port = RunLoop.Port { _, message in trace.add("message") }
            loop.add(port)
            try host.stepUntilQuiet()
            try plainThread { try port.send(RunLoop.PortMessage(id: 1)) }.join()
            #expect(host.isReady)
            try host.stepUntilQuiet()
            #expect(trace.take() == "message")
        }
    }

    // MARK: Timers

    @Test(arguments: HostKind.allCases) func `a timer makes the descriptor readable when it is due, and not before`(_ kind: HostKind) throws
    {
        try inHost(kind) { loop, host, trace in
            let date = RunLoop.Instant.now.advanced(by: .milliseconds(30))
            let timer = RunLoop.Timer(fireAt: date) { _ in trace.add("fired") }
            loop.add(timer)
            #expect(host.hosted.nextDeadline == date)
            let wasReadyEarly = host.isReady && RunLoop.Instant.now < date
            #expect(!wasReadyEarly)
            try host.run("the timer") { !trace.list.isEmpty }
            #expect(RunLoop.Instant.now >= date)
            #expect(host.steps == 1, "the host was woken once")
            #expect(host.hosted.nextDeadline == nil)
        }
    }

    @Test func `dates that the owner changes between two steps take effect at once`() throws {
        try inHost { loop, host, trace in
            let timer = RunLoop.Timer(fireAt: .now.advanced(by: .seconds(3_000))) { _ in trace.add("fired") }
            loop.add(timer)
            #expect(!host.isReady)
            timer.nextFire = .now
            try waitUntilReadable(host.hosted.descriptor, "a date that has come")
            timer.nextFire = .now.advanced(by: .seconds(3_000))
            #expect(!host.isReady, "the earlier date is forgotten")
            let other = RunLoop.Timer(fireAt: .now) { _ in trace.add("other") }
            loop.add(other)
            try waitUntilReadable(host.hosted.descriptor, "an added timer")
            other.invalidate()
            #expect(!host.isReady)
            loop.add(RunLoop.Timer(fireAt: .now) { _ in trace.add("last") })
            try host.run("the last timer") { !trace.list.isEmpty }
            #expect(trace.take() == "last")
            #expect(host.steps == 1)
            #expect(host.hosted.nextDeadline == timer.nextFire)
            loop.remove(timer)
            #expect(host.hosted.nextDeadline == nil)
        }
    }

    @Test func `a timer that another thread adds makes the descriptor readable when it is due`() throws {
        try inHost { loop, host, trace in
            loop.addIdleSource()
            try plainThread { _ = loop.add(RunLoop.Timer(fireAt: .now) { _ in trace.add("fired") }) }.join()
            try host.run("the timer") { !trace.list.isEmpty }
        }
    }

    @Test func `a repeating timer fires in every period that the host serves`() throws {
        try inHost { loop, host, trace in
            loop.add(
                RunLoop.Timer(every: .milliseconds(1)) { timer in
                    trace.add("x")
                    if trace.list.count == 5 { timer.invalidate() }
                })
            try host.run("five periods") { trace.list.count == 5 }
            #expect(!host.isReady)
        }
    }

    @Test func `in manual time the descriptor follows the clock`() throws {
        try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            let trace = Trace()
            loop.use(clock)
            let host = try PlainHost(loop)
            loop.addTimer(at: .ms(10)) { _ in trace.add("ten@\(clock.ms)") }
            loop.addTimer(at: .ms(20)) { _ in trace.add("twenty@\(clock.ms)") }
            try host.stepUntilQuiet()
            #expect(host.hosted.nextDeadline == .ms(10))
            clock.advance(by: .milliseconds(9))
            #expect(!host.isReady)
            clock.advance(by: .milliseconds(1))
            #expect(host.isReady)
            try host.stepUntilQuiet()
            clock.advance(by: .milliseconds(10))
            try host.stepUntilQuiet()
            #expect(trace.take() == "ten@10 twenty@20")
        }
        // Here the clock jumps while the loop sleeps in its host.
        try inManualTime { loop, clock, trace in
            let host = try PlainHost(loop)
            loop.addTimer(at: .ms(3_000_000)) { _ in trace.add("fired@\(clock.ms)") }
            try host.run("the jump of the clock") { !trace.list.isEmpty }
            #expect(trace.take() == "fired@3000000")
        }
    }

    // MARK: C libraries

    @Test(arguments: HostKind.allCases) func `events, timeouts and activations of C libraries make the descriptor readable`(
        _ kind: HostKind
    ) throws {
        try inHost(kind) { loop, host, trace in
            let pipe = Pipe()
            let (readable, timeout) = loop.withEventBase { base in
                let readable = ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST) { _ in trace.add(pipe.readAll()) }
                readable.add()
                let timeout = ForeignEvent(base) { _ in trace.add("timeout") }
                return (readable, timeout)
            }
            defer {
                readable.free()
                timeout.free()
            }
            try host.stepUntilQuiet()
            #expect(host.hosted.nextDeadline == nil)
            pipe.write("a")
            try host.run("an event") { trace.description == "a" }
            #expect(!host.isReady)

            // libevent's clock may be some milliseconds behind.
            let before = RunLoop.Instant.now
            loop.withEventBase { _ in timeout.add(milliseconds: 20) }
            let deadline = try #require(host.hosted.nextDeadline)
            #expect(deadline > before && deadline < .now.advanced(by: .milliseconds(60)))
            let steps = host.steps
            try host.run("a timeout") { trace.description == "a timeout" }
            #expect(host.steps == steps + 1, "not before the timeout is due by libevent's clock")
            #expect(!host.isReady && host.hosted.nextDeadline == nil)

            loop.withEventBase { _ in timeout.activate() }
            #expect(host.isReady)
            try host.stepUntilQuiet()
            #expect(trace.take() == "a timeout timeout")
        }
    }

    // In microseconds the first is too long, in nanoseconds both are.
    @Test(arguments: [Int.max, 10_000_000_000_000])
    func `a timeout of a C library that is too long for our clock never makes the descriptor readable`(milliseconds: Int) throws {
        try inHost { loop, host, trace in
            let timeout = loop.withEventBase { base in
                let timeout = ForeignEvent(base) { _ in trace.add("timeout") }
                timeout.add(milliseconds: milliseconds)
                return timeout
            }
            defer { timeout.free() }
            #expect(host.hosted.nextDeadline == nil)
            try host.stepUntilQuiet()
            #expect(!host.isReady && trace.list.isEmpty)
        }
    }

    @Test func `a timeout that a handler sets through the library alone takes effect with that step`() throws {
        try inHost { loop, host, trace in
            let timeout = loop.withEventBase { ForeignEvent($0) { _ in trace.add("timeout") } }
            defer { timeout.free() }
            loop.perform { timeout.add(milliseconds: 1) }
            host.step()
            try host.run("the timeout") { !trace.list.isEmpty }
        }
    }

    @Test func `a C library that is ready again and again does not keep a timer from firing`() throws {
        try inHost { loop, host, trace in
            let event = loop.withEventBase { base in
                let event = ForeignEvent(base) { $0.activate() }
                event.activate()
                return event
            }
            defer { event.free() }
            loop.add(RunLoop.Timer(after: .milliseconds(1)) { _ in trace.add("fired") })
            try host.run("the timer") { !trace.list.isEmpty }
        }
    }

    // MARK: Two things at once

    @Test func `whatever is ready at once is served by as many steps as it takes`() throws {
        try inHost { loop, host, trace in
            let pipe = Pipe()
            loop.add(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in trace.add(pipe.readAll()) })
            let port = RunLoop.Port { _, _ in trace.add("message") }
            loop.add(port)
            try host.stepUntilQuiet()
            loop.add(RunLoop.Timer(fireAt: .now) { _ in trace.add("timer") })
            pipe.write("pipe")
            try port.send(RunLoop.PortMessage(id: 1))
            try port.send(RunLoop.PortMessage(id: 2))
            loop.perform { trace.add("post") }
            loop.performBlock { trace.add("block") }
            let steps = try host.stepUntilQuiet()
            #expect(trace.list.sorted() == ["block", "message", "message", "pipe", "post", "timer"])
            #expect(steps <= 6, "\(steps) steps")
        }
    }

    @Test func `posts that arrive while a step works, in any step of it, are not lost`() throws {
        let places: [RunLoop.Activity] = [.entry, .beforeTimers, .beforeSources, .exit]
        for place in places {
            try inHost { loop, host, trace in
                loop.addIdleSource()
                try host.stepUntilQuiet()
                loop.atFirst(place) {
                    // The poster returns before the step goes on.
                    #expect(throws: Never.self) { try plainThread { loop.perform { trace.add("posted") } }.join() }
                }
                host.step()
                try host.stepUntilQuiet()
                #expect(trace.take() == "posted", "\(place)")
            }
        }
    }

    @Test func `four producers that post 100,000 times lose nothing, and the host does not spin`() throws {
        try inHost(.epoll) { loop, host, _ in
            loop.addIdleSource()
            let count = Box(0)
            let producers = (0..<4).map { _ in
                plainThread { for _ in 0..<25_000 { loop.perform { count.increment() } } }
            }
            try host.run("100,000 posts") { count.value == 100_000 }
            for producer in producers { try producer.join() }
            #expect(host.steps <= 100_001, "\(host.steps) steps")
            #expect(try host.stepUntilQuiet() <= 2)
            #expect(count.value == 100_000)
        }
    }

    @Test func `each of many single posts wakes a host that sleeps`() throws {
        try inHost(.epoll) { loop, host, _ in
            loop.addIdleSource()
            try host.stepUntilQuiet()
            let served = Box(0)
            let producer = plainThread {
                for number in 1...5_000 {
                    loop.perform { served.increment() }
                    try waitUntil("post \(number)") { served.value == number }
                }
            }
            try host.run("5,000 posts") { served.value == 5_000 }
            try producer.join()
        }
    }
}
#endif
