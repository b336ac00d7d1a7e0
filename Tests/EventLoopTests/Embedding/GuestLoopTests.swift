// Loops of others that this one drives (semantics 20).

import EventLoopTestSupport
import Testing

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct GuestLoopTests {
    /// A guest whose descriptor is a pipe, and whose instant a test sets.
    private final class Guest: Sendable {
        let pipe = Pipe()
        let wanted = Box<RunLoop.Instant?>(nil)
        let onPrepare = Box<(@Sendable () -> Void)?>(nil)
        let onDispatch = Box<(@Sendable () -> Void)?>(nil)

        func source(
            _ trace: Trace, _ name: String = "", priority: RunLoop.Priority = .default, tracesPrepare: Bool = false
        ) throws -> RunLoop.GuestLoop {
            try RunLoop.GuestLoop(
                descriptor: pipe.readEnd, priority: priority,
                prepare: { [self] in
                    if tracesPrepare { trace.add("prepare\(name)") }
                    onPrepare.value?()
                    return wanted.value
                },
                dispatch: { [self] in
                    trace.add("dispatch\(name)")
                    wanted.value = nil
                    pipe.readAll()
                    onDispatch.value?()
                })
        }
    }

    /// Called at the end of a pass.
    private final class Listener: PassEndListener {
        private let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
        func passWillEnd() { body() }
    }

    private struct UncheckedHost: @unchecked Sendable {
        // SAFETY: used on the loop's thread only.
        let hosted: RunLoop.HostedLoop
    }

    // MARK: Calls

    @Test func `a guest is asked before each poll, and called when its descriptor is readable`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            loop.add(try guest.source(trace, tracesPrepare: true))
            trace.observe(loop)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S prepare X")
            guest.pipe.write()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S prepare dispatch X")
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "E T S prepare W prepare A X")
        }
    }

    @Test func `without observers of the sleep a guest is asked once in a pass that sleeps`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            loop.add(try guest.source(trace, tracesPrepare: true))
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "prepare")
        }
    }

    @Test func `a guest is called at the instant it wants, and the loop sleeps until then`() throws {
        try inManualTime { loop, clock, trace in
            let guest = Guest()
            defer { guest.onDispatch.value = nil }
            loop.add(try guest.source(trace))
            guest.wanted.value = .ms(10)
            guest.onDispatch.value = {
                trace.add("@\(clock.ms)")
                if clock.ms < 30 { guest.wanted.value = .ms(30) }
            }
            #expect(loop.run(for: .milliseconds(100)) == .timedOut)
            #expect(trace.take() == "dispatch @10 dispatch @30")
            #expect(clock.ms == 100)
        }
    }

    @Test func `an instant that has come counts also in a pass that does not sleep`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            loop.add(try guest.source(trace))
            guest.wanted.value = .ms(-5)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "dispatch")
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    @Test func `a call of a guest is a handled source, once for both reasons`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            loop.add(try guest.source(trace))
            guest.pipe.write()
            guest.wanted.value = .ms(0)
            let before = loop.statistics.sourcesHandled
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "dispatch")
            #expect(loop.statistics.sourcesHandled == before + 1)
        }
    }

    @Test func `in real time the sleep ends at the guest's instant`() throws {
        try onFreshThread { loop in
            let trace = Trace()
            let guest = Guest()
            loop.add(try guest.source(trace))
            let date = RunLoop.Instant.now.advanced(by: .milliseconds(20))
            guest.wanted.value = date
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(RunLoop.Instant.now >= date)
        }
    }

    @Test func `an idle guest is not asked while the loop sleeps`() throws {
        let guest = Guest()
        let trace = Trace()
        let running = RunningLoop { loop in
            #expect(throws: Never.self) { loop.add(try guest.source(trace, tracesPrepare: true)) }
        }
        try waitUntilAsleep(running.loop)
        let asked = trace.list.count
        let passes = running.loop.statistics.passes
        for _ in 0..<100 { breathe() }
        #expect(trace.list.count == asked && running.loop.statistics.passes == passes)
        try running.end()
    }

    // MARK: Beside other items

    @Test func `a guest that always wants to be called starves neither timers nor other sources`() throws {
        try inManualTime { loop, clock, trace in
            let guest = Guest()
            defer { guest.onDispatch.value = nil }
            let calls = Box(0)
            loop.add(try guest.source(Trace()))
            guest.wanted.value = .ms(0)
            guest.onDispatch.value = {
                calls.increment()
                guest.wanted.value = .ms(0)
                if calls.value == 5 { clock.advance(by: .milliseconds(10)) }
            }
            loop.addTimer(at: .ms(10)) { _ in
                trace.add("timer after \(calls.value)")
                loop.performBlock { trace.add("block") }
            }
            _ = try loop.addReadyPipe { source in
                trace.add("pipe")
                source.invalidate()
            }
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in loop.stop() })
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.list.sorted() == ["block", "pipe", "timer after 5"])
            #expect(clock.ms == 10)
        }
    }

    @Test func `guests are served by priority`() throws {
        try inManualTime { loop, _, trace in
            let (low, high) = (Guest(), Guest())
            loop.add(try low.source(trace, " low", priority: .low))
            loop.add(try high.source(trace, " high", priority: .high))
            low.pipe.write()
            high.wanted.value = .ms(0)
            for _ in 0..<2 { _ = loop.run(for: .zero) }
            #expect(trace.take() == "dispatch high dispatch low")
        }
    }

    // MARK: Modes

    @Test func `a guest is silent while other modes run, and is asked in each of its modes`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            let source = try guest.source(trace, tracesPrepare: true)
            loop.add(source)
            loop.add(source, forMode: "second")
            loop.addIdleSource(forMode: "other")
            guest.pipe.write()
            guest.wanted.value = .ms(0)
            #expect(loop.run(mode: "other", for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "second", for: .zero) == .timedOut)
            #expect(trace.take() == "prepare dispatch")
            loop.remove(source)
            loop.addIdleSource()
            guest.pipe.write()
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "")
            loop.remove(source, forMode: "second")
            #expect(loop.run(mode: "second", for: .zero) == .finished)
        }
    }

    @Test func `a guest in the common modes is in those that become common`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            loop.add(try guest.source(trace), forMode: .common)
            loop.addCommonMode("late")
            guest.wanted.value = .ms(0)
            #expect(loop.run(mode: "late", for: .zero) == .timedOut)
            #expect(trace.take() == "dispatch")
        }
    }

    // MARK: What its closures may do

    @Test func `a guest that is invalidated in prepare is not called`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            let source = try guest.source(trace, tracesPrepare: true)
            source.onInvalidation { trace.add("ended") }
            loop.add(source)
            loop.addIdleSource()
            guest.pipe.write()
            guest.wanted.value = .ms(0)
            guest.onPrepare.value = { source.invalidate() }
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "prepare ended")
            guest.onPrepare.value = nil
        }
    }

    @Test func `a guest that is invalidated in dispatch, or by another guest, is not called any more`() throws {
        try inManualTime { loop, _, trace in
            let (one, two) = (Guest(), Guest())
            let sources = [try one.source(trace), try two.source(trace)]
            for source in sources { loop.add(source) }
            loop.addIdleSource()
            for guest in [one, two] {
                guest.pipe.write()
                guest.wanted.value = .ms(0)
                guest.onDispatch.value = { for source in sources { source.invalidate() } }
            }
            #expect(loop.run(for: .milliseconds(1)) == .timedOut)
            #expect(trace.take() == "dispatch")
            for guest in [one, two] { guest.onDispatch.value = nil }
        }
    }

    @Test func `a run nested in dispatch, in the guest's mode or another, asks and calls the guest as any run does`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            loop.add(try guest.source(trace))
            loop.addIdleSource(forMode: "other")
            guest.pipe.write()
            guest.onDispatch.value = {
                guest.onDispatch.value = nil
                guest.pipe.write()
                #expect(loop.run(mode: "other", for: .milliseconds(1)) == .timedOut)
                trace.add("|")
                #expect(loop.run(for: .milliseconds(1)) == .timedOut)
                trace.add("|")
            }
            #expect(loop.run(for: .milliseconds(10)) == .timedOut)
            #expect(trace.take() == "dispatch | dispatch |")
        }
    }

    @Test func `a run nested in prepare works`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            loop.add(try guest.source(trace))
            guest.onPrepare.value = {
                guest.onPrepare.value = nil
                guest.pipe.write()
                #expect(loop.run(for: .milliseconds(1)) == .timedOut)
                trace.add("nested")
            }
            #expect(loop.run(for: .milliseconds(10)) == .timedOut)
            #expect(trace.take() == "dispatch nested")
        }
    }

    @Test func `work that prepare leaves is not slept over`() throws {
        try inManualTime { loop, clock, trace in
            let guest = Guest()
            loop.add(try guest.source(trace))
            guest.onPrepare.value = {
                guest.onPrepare.value = nil
                loop.performBlock { trace.add("block@\(clock.ms)") }
                loop.addTimer(at: .ms(5)) { _ in trace.add("timer@\(clock.ms)") }
            }
            #expect(loop.run(for: .milliseconds(10)) == .timedOut)
            #expect(trace.take() == "block@0 timer@5")
        }
    }

    // MARK: Refusals, the end

    @Test func `the loop does not sleep before it has asked a guest that another guest's prepare has added`() throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = (Guest(), Guest())
            let late = try second.source(trace, "2")
            second.wanted.value = .ms(5)
            second.onDispatch.value = { trace.add("@\(clock.ms)") }
            first.onPrepare.value = { loop.add(late) }
            loop.add(try first.source(trace, "1"))
            #expect(loop.run(for: .milliseconds(100)) == .timedOut)
            #expect(trace.take() == "dispatch2 @5")
        }
    }

    @Test func `the loop does not sleep before it has asked again a guest that was removed and added in prepare`() throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = (Guest(), Guest())
            let moved = try first.source(trace, "1")
            loop.add(moved)
            second.onPrepare.value = {
                if first.wanted.value != nil { return }
                first.wanted.value = .ms(5)
                loop.remove(moved)
                loop.add(moved)
                second.onPrepare.value = nil
            }
            loop.add(try second.source(trace, "2"))
            #expect(loop.run(for: .milliseconds(100)) == .timedOut)
            #expect(trace.take() == "dispatch1")
        }
    }

    @Test func `the loop does not sleep before it has asked a guest that the failure of a source has added`() throws {
        try inManualTime { loop, clock, trace in
            let guest = Guest()
            let late = try guest.source(trace)
            guest.wanted.value = .ms(5)
            guest.onDispatch.value = { trace.add("@\(clock.ms)") }
            let pipe = Pipe()
            let number = dup(pipe.readEnd)
            let failing = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in }
            failing.onInvalidation { loop.add(late) }
            close(number)
            // The mode has no base, so the source fails when the loop is about to sleep.
            loop.add(failing)
            #expect(loop.run(for: .milliseconds(100)) == .timedOut)
            #expect(trace.take() == "dispatch @5")
        }
    }

    @Test func `a guest is asked after the calls at the end of a pass, which may change what it wants`() throws {
        try inManualTime { loop, clock, trace in
            let guest = Guest()
            loop.add(try guest.source(trace))
            guest.onDispatch.value = { trace.add("@\(clock.ms)") }
            loop.performBlock { _ = loop.callAtEndOfPass(Listener { guest.wanted.value = .ms(5) }) }
            #expect(loop.run(for: .milliseconds(10)) == .timedOut)
            #expect(trace.take() == "dispatch @5")
        }
    }

    @Test func `a host is not kept from a guest that another guest's prepare has added`() throws {
        try inHost { loop, host, trace in
            let (first, second) = (Guest(), Guest())
            let late = try second.source(trace, "2")
            second.wanted.value = .now
            first.onPrepare.value = { loop.add(late) }
            loop.add(try first.source(trace, "1"))
            try host.stepUntilQuiet()
            #expect(trace.description == "dispatch2")
        }
    }

    @Test func `a guest that is always asked for an instant from now on is called when its host has slept until then`() throws {
        try inHost { loop, host, trace in
            let pipe = Pipe()
            loop.add(
                try RunLoop.GuestLoop(
                    descriptor: pipe.readEnd, prepare: { .now + .milliseconds(10) },
                    dispatch: { withExtendedLifetime(pipe) { trace.add("x") } }))
            let before = host.steps
            try host.run("three calls") { trace.list.count == 3 }
            #expect(host.steps - before < 20)
        }
    }

    @Test func `a loop whose last host is invalidated by prepare is its thread's again`() throws {
        try inManualTime { loop, _, trace in
            let guest = Guest()
            let host = Box<UncheckedHost?>(nil)
            guest.onPrepare.value = { host.value?.hosted.invalidate() }
            let hosted = try loop.hosted()
            host.value = UncheckedHost(hosted: hosted)
            loop.add(try guest.source(trace))
            #expect(hosted.descriptor == -1)
            let isWorking = loop.waker.isWorking
            #expect(isWorking)
            (host.value, guest.onPrepare.value) = (nil, nil)
        }
    }

    @Test func `a run of another mode at the beginning of a step does not make it forget a guest that is due`() throws {
        try inHost { loop, host, trace in
            let (pipe, other) = (Pipe(), Guest())
            loop.add(try other.source(trace, "other"), forMode: "other")
            loop.add(
                try RunLoop.GuestLoop(
                    descriptor: pipe.readEnd, prepare: { .now + .milliseconds(10) },
                    dispatch: { withExtendedLifetime(pipe) { trace.add("x") } }))
            loop.add(RunLoop.Observer(activities: .entry) { _, _ in _ = loop.run(mode: "other", for: .zero) })
            let before = host.steps
            try host.run("three calls") { trace.list.count == 3 || host.steps > before + 50 }
            #expect(trace.description == "x x x")
        }
    }

    @Test func `a descriptor that cannot be watched is refused`() throws {
        #expect(throws: RunLoop.SourceError.badDescriptor(-1)) { _ = try RunLoop.GuestLoop(descriptor: -1) {} }
        let null = open("/dev/null", O_RDONLY | O_CLOEXEC)
        defer { close(null) }
        #expect(throws: RunLoop.SourceError.notPollable(null)) { _ = try RunLoop.GuestLoop(descriptor: null) {} }
    }

    @Test func `a guest leaves with its loop, and may join another one`() throws {
        let trace = Trace()
        let guest = Guest()
        let source = try guest.source(trace)
        try onFreshThread { loop in _ = loop.add(source) }
        guest.wanted.value = .now
        try onFreshThread { loop in
            loop.add(source)
            #expect(loop.run(for: .zero) == .timedOut)
        }
        #expect(trace.take() == "dispatch")
        #expect(source.isValid)
    }

    @Test func `a released guest releases its closures`() throws {
        final class Held: Sendable {}
        let weakHeld = WeakReference<Held>()
        do {
            let held = Held()
            weakHeld.value = held
            let pipe = Pipe()
            let source = try RunLoop.GuestLoop(
                descriptor: pipe.readEnd,
                prepare: {
                    _ = held; return nil
                }, dispatch: { _ = held })
            try onFreshThread { loop in
                loop.add(source)
                _ = loop.run(for: .zero)
            }
        }
        #expect(weakHeld.value == nil)
    }

    @Test func `without descriptors for a base a guest is asked and called all the same`() async {
        await #expect(processExitsWith: .success) {
            try onFreshThread { loop in
                let trace = Trace()
                let (one, two) = (Guest(), Guest())
                loop.add(try one.source(trace, " one"), forMode: "late")
                loop.add(try two.source(trace, " two"), forMode: "late")
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(7), &limit)  // RLIMIT_NOFILE
                limit.rlim_cur = 64
                setrlimit(__rlimit_resource_t(7), &limit)
                var taken: [Int32] = []
                // A leak detector needs descriptors when the process exits.
                defer { for descriptor in taken { close(descriptor) } }
                while let next = Optional(dup(one.pipe.readEnd)), next >= 0 { taken.append(next) }  // ends: at the limit
                two.pipe.write()
                // Not before, because on a slow machine both could be due at once.
                two.onDispatch.value = { one.wanted.value = .now.advanced(by: .milliseconds(5)) }
                let end = RunLoop.Instant.now.advanced(by: patience)
                while trace.list.count < 2 && RunLoop.Instant.now < end {
                    _ = loop.run(mode: "late", until: end, returnAfterSourceHandled: true)
                }
                #expect(trace.take() == "dispatch two dispatch one")
            }
        }
    }

    #if os(Linux)
    @Test func `a hosted loop asks its guests before the host sleeps`() throws {
        try inHost { loop, host, trace in
            let guest = Guest()
            loop.add(try guest.source(trace))
            try host.stepUntilQuiet()
            guest.pipe.write()
            #expect(host.isReady)
            try host.stepUntilQuiet()
            #expect(trace.take() == "dispatch")
            let date = RunLoop.Instant.now.advanced(by: .milliseconds(5))
            guest.wanted.value = date
            loop.wakeUp()
            try host.run("the guest's instant") { !trace.list.isEmpty }
            #expect(RunLoop.Instant.now >= date)
            guest.wanted.value = .now.advanced(by: .seconds(3_000))
            host.step()
            #expect(host.hosted.nextDeadline == guest.wanted.value)
            guest.wanted.value = nil
            host.step()
            #expect(host.hosted.nextDeadline == nil && !host.isReady)
        }
    }
    #endif
}
