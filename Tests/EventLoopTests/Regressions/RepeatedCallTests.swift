// Rule proved here, for every handler that the library calls again and again (those of the other modules: RepeatedStreamCallTests,
// RepeatedDatagramCallTests, RepeatedCFCallTests, RepeatedFoundationCallTests):
// - A later call goes through no more functions than an earlier one, and leaves no memory behind.
//
// The handler of a named port was a bare closure in a lock. Each message wrapped it in two more functions, until the stack was full.

import CLibevent
import EventLoopMessagePorts
import EventLoopObserving
import EventLoopTestSupport
import Testing

@testable import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .serialized) struct RepeatedCallTests {
    @Test(arguments: RepeatedHandler.allCases)
    func `a later call goes through no more functions than an earlier one, and leaves no memory behind`(handler: RepeatedHandler) async {
        // No other test allocates memory in this process.
        await #expect(processExitsWith: .success) { [handler] in
            let calls = RepeatedCalls(handler.callCount)
            try handler.play(calls)
            calls.expectNoGrowth()
        }
    }

    /// The fault that these tests are for.
    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer)) func `a bare closure in a lock is found`() async {
        await #expect(processExitsWith: .success) {
            let calls = RepeatedCalls()
            let handler = Locked<@Sendable () -> Void>({ calls.note() })
            for _ in 0..<calls.total {
                let call = handler.withLock { $0 }
                call()
            }
            let growth = calls.growth
            #expect(growth.stack > 2 * RepeatedCalls.allowed.stack)
            #if canImport(Glibc)
            #expect(growth.memory > 2 * RepeatedCalls.allowed.memory)
            #endif
        }
    }

    @Test func `a call that holds less memory than the others is no growth`() async {
        await #expect(processExitsWith: .success) {
            let calls = RepeatedCalls()
            for number in 1...calls.total {
                let held = [UInt8](repeating: 0, count: number == calls.total / 3 ? 0 : 2 * RepeatedCalls.allowed.memory)
                withExtendedLifetime(held) { calls.note() }
            }
            calls.expectNoGrowth()
        }
    }

    #if canImport(Glibc)
    /// With the fewest calls of a test, and as much memory less in a late call as a report of a stall has for its backtrace.
    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer))
    func `the smallest block that each call leaves behind is found, also if a late call holds less`() async {
        await #expect(processExitsWith: .success) {
            let calls = RepeatedCalls(RepeatedHandler.stall.callCount)
            let (window, backtrace) = (calls.total / 30, 9_400)
            for number in 1...calls.total {
                _ = Unmanaged.passRetained(Smallest())
                let held = [UInt8](repeating: 0, count: number == calls.total - window + 1 ? 0 : backtrace)
                withExtendedLifetime(held) { calls.note() }
            }
            #expect(calls.growth.memory > RepeatedCalls.allowed.memory)
        }
    }
    #endif
}

private final class Smallest {}

enum RepeatedHandler: String, CaseIterable, Codable, Sendable {
    case repeatingTimer, onDemandTimer, timerFiredByHand, delayedPerform
    #if os(Linux)
    case wallTimer, clockChange
    #endif
    case customSource, schedule, cancel
    case levelDescriptor, edgeDescriptor, oneShotDescriptor, listener, signal, guestPrepare, guestDispatch, foreignEvent
    case observer, port, messagePort
    case perform, performBlock, hosted
    case stall, warning, libeventLog

    /// A stall lasts a millisecond at least.
    var callCount: Int { self == .stall ? 900 : 3_000 }

    /// Has the library call the handler so often.
    func play(_ calls: RepeatedCalls) throws {
        switch self {
        case .repeatingTimer, .onDemandTimer, .timerFiredByHand, .delayedPerform:
            try inManualTime { loop, clock, _ in playTimer(calls, loop, clock) }
        #if os(Linux)
        case .wallTimer, .clockChange:
            try inManualTime { loop, clock, _ in try playCivilTime(calls, loop, clock) }
        #endif
        case .customSource, .schedule, .cancel:
            try onFreshThread { loop in playCustomSource(calls, loop) }
        case .levelDescriptor, .edgeDescriptor, .oneShotDescriptor:
            try onFreshThread { loop in try playDescriptor(calls, loop) }
        case .guestPrepare, .guestDispatch:
            try onFreshThread { loop in try playGuest(calls, loop) }
        case .foreignEvent, .libeventLog:
            try onFreshThread { loop in playForeignEvent(calls, loop) }
        case .perform:
            try onFreshThread { loop in calls.makePosted(on: loop) { _ = loop.perform($0) } }
        case .performBlock:
            try onFreshThread { loop in
                calls.makePosted(on: loop) {
                    _ = loop.performBlock($0)
                    // A block alone wakes no loop.
                    loop.wakeUp()
                }
            }
        case .listener: try playListener(calls)
        case .signal: try playSignal(calls)
        case .observer: try playObserver(calls)
        case .port: try playPort(calls)
        case .messagePort: try playMessagePort(calls)
        case .hosted: try playHosted(calls)
        case .stall: try playStalls(calls)
        case .warning: playWarnings(calls)
        }
    }

    // MARK: Time

    private func playTimer(_ calls: RepeatedCalls, _ loop: RunLoop, _ clock: RunLoop.ManualClock) {
        switch self {
        case .onDemandTimer:
            let timer = RunLoop.Timer.onDemand { timer in
                calls.note()
                if calls.areEnough { timer.invalidate() } else { timer.nextFire = clock.now + .milliseconds(1) }
            }
            loop.add(timer)
            timer.nextFire = .ms(1)
            _ = loop.run(for: patience)
        case .timerFiredByHand:
            let timer = RunLoop.Timer(every: .seconds(3_600)) { _ in calls.note() }
            loop.add(timer)
            for _ in 0..<calls.total { timer.fire() }
            timer.invalidate()
        case .delayedPerform:
            calls.makePosted(on: loop) { _ = loop.perform(after: .milliseconds(1), $0) }
        default:
            let timer = RunLoop.Timer(every: .milliseconds(1)) { timer in
                calls.note()
                if calls.areEnough { timer.invalidate() }
            }
            loop.add(timer)
            _ = loop.run(for: patience)
        }
    }

    #if os(Linux)
    private func playCivilTime(_ calls: RepeatedCalls, _ loop: RunLoop, _ clock: RunLoop.ManualClock) throws {
        if self == .wallTimer {
            let timer = try RunLoop.WallTimer(fireAt: clock.wallTime + .seconds(1)) { timer in
                calls.note()
                if calls.areEnough { timer.invalidate() } else { timer.nextFire = clock.wallTime + .seconds(1) }
            }
            loop.add(timer)
            _ = loop.run(for: .seconds(100_000))
        } else {
            let source = try RunLoop.ClockChangeSource { _, _ in calls.note() }
            loop.add(source)
            _ = loop.run(for: .zero)
            calls.make(on: loop) { clock.wallTime = clock.wallTime + .seconds(1) }
            source.invalidate()
        }
    }
    #endif

    // MARK: Sources

    private func playCustomSource(_ calls: RepeatedCalls, _ loop: RunLoop) {
        let source = RunLoop.CustomSource(
            schedule: { _, _ in if self == .schedule { calls.note() } },
            cancel: { _, _ in if self == .cancel { calls.note() } },
            perform: { calls.note() })
        if self == .customSource {
            loop.add(source)
            calls.make(on: loop) { source.signal() }
        } else {
            for _ in 0..<calls.total {
                loop.add(source)
                loop.remove(source)
            }
        }
        source.invalidate()
    }

    private func playDescriptor(_ calls: RepeatedCalls, _ loop: RunLoop) throws {
        let trigger: RunLoop.DescriptorSource.Trigger =
            switch self {
            case .edgeDescriptor: .edge
            case .oneShotDescriptor: .oneShot
            default: .level
            }
        let pipe = Pipe()
        let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: trigger) { source, _ in
            calls.note()
            pipe.readAll()
            if trigger == .oneShot { source.rearm() }
        }
        loop.add(source)
        calls.make(on: loop) { pipe.write() }
        source.invalidate()
    }

    private func playListener(_ calls: RepeatedCalls) throws {
        try onFreshThread { loop in
            let folder = SocketFolder()
            // The kernel puts a connection to a Unix socket into the queue at once.
            let address = SocketAddress.unix(path: folder.file())
            let source = try RunLoop.SocketSource(listeningOn: address) { _, descriptor, _ in
                calls.note()
                close(descriptor)
            }
            loop.add(source)
            calls.make(on: loop) { close(connectedClient(to: address)) }
            source.invalidate()
        }
    }

    private func playSignal(_ calls: RepeatedCalls) throws {
        let signal = testSignal(1)
        try onFreshThread { loop in
            letThrough(signal)
            let source = try RunLoop.SignalSource(signal: signal) { _, _ in calls.note() }
            loop.add(source)
            calls.make(on: loop) { raiseHere(signal) }
            source.invalidate()
        }
    }

    private func playGuest(_ calls: RepeatedCalls, _ loop: RunLoop) throws {
        let pipe = Pipe()
        let guest = try RunLoop.GuestLoop(
            descriptor: pipe.readEnd,
            prepare: {
                if self == .guestPrepare { calls.note() }
                return nil
            },
            dispatch: {
                if self == .guestDispatch { calls.note() }
                pipe.readAll()
            })
        loop.add(guest)
        calls.make(on: loop) { pipe.write() }
        guest.invalidate()
    }

    /// An event of C code, and a callback in which it makes a mistake that libevent logs.
    private func playForeignEvent(_ calls: RepeatedCalls, _ loop: RunLoop) {
        let pipe = Pipe()
        if self == .libeventLog { RunLoop.setLibeventLogHandler { _, _ in calls.note() } }
        let event = loop.withEventBase { base in
            ForeignEvent(base, pipe.readEnd, EV_READ | EV_PERSIST) { event in
                pipe.readAll()
                if self == .foreignEvent { calls.note() } else { _ = event_base_loop(event.base, EVLOOP_NONBLOCK) }
            }
        }
        event.add()
        calls.make(on: loop) { pipe.write() }
        event.free()
    }

    private func playPort(_ calls: RepeatedCalls) throws {
        try onFreshThread { loop in
            let port = RunLoop.Port { _, _ in calls.note() }
            loop.add(port)
            try calls.make(on: loop) { try port.send(RunLoop.PortMessage(id: 1)) }
            port.invalidate()
        }
    }

    private func playMessagePort(_ calls: RepeatedCalls) throws {
        let served = try ServedPort { _, _, _ in
            calls.note()
            return nil
        }
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        for _ in 0..<calls.total { _ = try remote.ask() }
        try served.end()
    }

    // MARK: Loops

    private func playObserver(_ calls: RepeatedCalls) throws {
        try onFreshThread { loop in
            loop.add(RunLoop.Observer(activities: .beforeSources) { _, _ in calls.note() })
            loop.addIdleSource()
            for _ in 0..<calls.total { _ = loop.run(for: .zero) }
        }
    }

    private func playHosted(_ calls: RepeatedCalls) throws {
        try inHost { loop, host, _ in
            let source = RunLoop.CustomSource { calls.note() }
            loop.add(source)
            for _ in 0..<calls.total {
                source.signal()
                loop.wakeUp()
                try host.stepUntilQuiet()
            }
        }
    }

    // MARK: Handlers of the process

    /// The stalled code waits until the watchdog has reported it.
    private func playStalls(_ calls: RepeatedCalls) throws {
        let reports = Box(0)
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(1)) { _ in
            calls.note()
            reports.increment()
        }
        let running = RunningLoop()
        let loop = running.loop
        watchdog.watch(loop)
        try waitUntil("the loop publishes its callouts") { loop.hasAdoptedObservation }
        for number in 1...calls.total {
            loop.perform {
                do { try waitUntil("the watchdog reports the stall") { reports.value >= number } } catch { Issue.record(error) }
            }
            try waitUntil("the stall is over") { reports.value >= number }
        }
        try running.end()
        watchdog.invalidate()
    }

    private func playWarnings(_ calls: RepeatedCalls) {
        RunLoop.setWarningHandler { _ in calls.note() }
        for _ in 0..<calls.total { Warnings.reportEach(.failedRequest, label: nil, site: CreationSite(#fileID, #line), "planted") }
        RunLoop.setWarningHandler(nil)
    }
}
