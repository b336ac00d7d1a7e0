// Rules proved here (Supervisor+Watching.swift, SupervisorPulse.swift, ProgressCheck.swift):
// - A sign of life is sent only if every watched loop has made progress since the last one: it made a pass, or it is asleep.
// - A loop that sleeps is not woken. A loop that has ended is not watched any more.
// - The thread ends when no loop is left, and with the supervisor.

import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopSupervisor

/// A loop that is stuck in a callout until it is released.
private final class StuckLoop: Sendable {
    let running = RunningLoop()
    private let mayGoOn = Gate()

    init() {
        let isStuck = Gate()
        running.loop.perform { [mayGoOn] in
            isStuck.open()
            mayGoOn.wait()
        }
        isStuck.wait()
    }

    var loop: RunLoop { running.loop }
    func release() { mayGoOn.open() }
}

/// `#expect` cannot call a mutating function on its own.
private func looks(_ check: inout ProgressCheck) -> Bool { check.look() }

@Suite(.bounded, .tags(.threads)) struct ProgressCheckTests {
    @Test func `a loop that sleeps is not woken and makes progress`() throws {
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        var check = ProgressCheck()
        check.add(running.loop)
        let passes = running.loop.statistics.passes
        for _ in 0..<3 {
            #expect(looks(&check))
            check.begin()
        }
        #expect(running.loop.statistics.passes == passes && running.loop.isWaiting)
        try running.end()
    }

    @Test func `a loop that is stuck in a callout makes none until it goes on`() throws {
        let stuck = StuckLoop()
        var check = ProgressCheck()
        check.add(stuck.loop)
        #expect(!looks(&check))
        #expect(!looks(&check))
        stuck.release()
        try waitUntilAsleep(stuck.loop)
        #expect(looks(&check))
        try stuck.running.end()
    }

    @Test func `a loop that got stuck after it was seen asleep has made progress once`() throws {
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        var check = ProgressCheck()
        check.add(running.loop)
        let (isStuck, mayGoOn) = (Gate(), Gate())
        running.loop.perform {
            isStuck.open()
            mayGoOn.wait()
        }
        isStuck.wait()
        // It woke up, which is progress.
        #expect(looks(&check))
        check.begin()
        #expect(!looks(&check))
        mayGoOn.open()
        try running.end()
    }

    @Test func `a nested run is progress, and so is its sleep`() throws {
        let running = RunningLoop()
        let isNested = Gate()
        running.loop.perform { [loop = running.loop] in
            loop.addIdleSource(forMode: "nested")
            isNested.open()
            _ = loop.run(mode: "nested", for: patience)
        }
        isNested.wait()
        try waitUntilAsleep(running.loop)
        var check = ProgressCheck()
        check.add(running.loop)
        check.begin()
        #expect(looks(&check))
        running.loop.stop()
        try running.end()
    }

    @Test func `a loop that nobody runs makes none`() throws {
        try onFreshThread { loop in
            let keepAlive = loop.keepAlive()
            var check = ProgressCheck()
            check.add(loop)
            #expect(!looks(&check))
            _ = loop.run(for: .zero)
            #expect(looks(&check))
            check.begin()
            #expect(!looks(&check))
            keepAlive.cancel()
        }
    }

    @Test func `a hosted loop makes progress between two steps`() throws {
        try onFreshThread { loop in
            let keepAlive = loop.keepAlive()
            let hosted = try loop.hosted()
            var check = ProgressCheck()
            check.add(loop)
            // On its own thread a loop is not asleep; another thread asks.
            let isProgress = try plainThread { [check] in
                var check = check
                return check.look()
            }.join()
            #expect(isProgress)
            hosted.invalidate()
            keepAlive.cancel()
        }
    }

    @Test func `one loop without progress is enough, whichever it is`() throws {
        let (first, last, stuck) = (RunningLoop(), RunningLoop(), StuckLoop())
        try waitUntilAsleep(first.loop)
        for order in [[first.loop, stuck.loop, last.loop], [stuck.loop, first.loop], [last.loop, stuck.loop]] {
            var check = ProgressCheck()
            for loop in order { check.add(loop) }
            #expect(!looks(&check))
            check.remove(stuck.loop)
            try waitUntilAsleep(last.loop)
            #expect(looks(&check))
        }
        stuck.release()
        for running in [first, last, stuck.running] { try running.end() }
    }

    @Test func `progress since the last sign of life counts, also if a look in between found another loop stuck`() throws {
        try onFreshThread { loop in
            let keepAlive = loop.keepAlive()
            let stuck = StuckLoop()
            var check = ProgressCheck()
            check.add(loop)
            check.add(stuck.loop)
            _ = loop.run(for: .zero)
            #expect(!looks(&check))
            stuck.release()
            try waitUntilAsleep(stuck.loop)
            // This loop's pass was before the first look.
            #expect(looks(&check))
            keepAlive.cancel()
            try stuck.running.end()
        }
    }

    @Test func `a loop that has ended is removed, and adding a loop twice is adding it once`() throws {
        let running = RunningLoop()
        var check = ProgressCheck()
        check.add(running.loop)
        check.add(running.loop)
        check.remove(running.loop)
        #expect(check.isEmpty)
        check.add(running.loop)
        try running.end()
        #expect(check.removeEndedLoops().count == 1)
        #expect(check.isEmpty)
    }
}

@Suite(.bounded, .tags(.threads)) struct SupervisorWatchTests {
    /// Short, so that the tests are. No test depends on when a sign of life comes.
    private static let interval: Duration = .milliseconds(40)

    @Test func `an idle loop has signs of life and is not woken`() throws {
        let manager = NotificationSocket()
        let supervisor = try manager.supervisor(watchdog: Self.interval)
        #expect(supervisor.watchdogInterval == Self.interval)
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        let passes = running.loop.statistics.passes
        try supervisor.watch(running.loop)
        for _ in 0..<5 { #expect(try manager.receive() == "WATCHDOG=1") }
        #expect(running.loop.statistics.passes == passes)
        supervisor.stopWatching(running.loop)
        try waitUntil("the thread ends") { !supervisor.pulse.hasThread }
        _ = manager.received()
        try supervisor.watch([running.loop])
        #expect(try manager.receive() == "WATCHDOG=1")
        try running.end()
        try waitUntil("the thread ends with the last loop") { !supervisor.pulse.hasThread }
    }

    @Test func `a stuck loop among several has no signs of life until it goes on`() throws {
        let (managerOfStuck, managerOfIdle) = (NotificationSocket(), NotificationSocket())
        let (ofStuck, ofIdle) = (
            try managerOfStuck.supervisor(watchdog: Self.interval), try managerOfIdle.supervisor(watchdog: Self.interval)
        )
        let (idle, stuck) = (RunningLoop(), StuckLoop())
        try ofStuck.watch([idle.loop, stuck.loop])
        try ofIdle.watch(idle.loop)
        // As many as the other would have had.
        for _ in 0..<8 { #expect(try managerOfIdle.receive() == "WATCHDOG=1") }
        #expect(managerOfStuck.received() == [])
        stuck.release()
        #expect(try managerOfStuck.receive() == "WATCHDOG=1")
        try idle.end()
        try stuck.running.end()
    }

    @Test func `a loop that was stuck and has ended does not prevent signs of life`() throws {
        let manager = NotificationSocket()
        let supervisor = try manager.supervisor(watchdog: Self.interval)
        let (idle, stuck) = (RunningLoop(), StuckLoop())
        try supervisor.watch([idle.loop, stuck.loop])
        stuck.release()
        try stuck.running.end()
        _ = manager.received()
        #expect(try manager.receive() == "WATCHDOG=1")
        try idle.end()
    }

    @Test func `the thread and its loops are released with the supervisor`() throws {
        let manager = NotificationSocket()
        let running = RunningLoop()
        weak var pulse: SupervisorPulse?
        do {
            let supervisor = try manager.supervisor(watchdog: .seconds(3_600))
            pulse = supervisor.pulse
            try supervisor.watch(running.loop)
            #expect(supervisor.pulse.hasThread)
        }
        try waitUntil("the thread releases its state") { pulse == nil }
        try running.end()
    }

    @Test func `a service manager that is away has signs of life again when it is back`() throws {
        let folder = SocketFolder()
        let path = folder.file("notify")
        let variables = ["NOTIFY_SOCKET": path, "WATCHDOG_USEC": "40000"]
        let supervisor = try RunLoop.Supervisor(environment: variables)
        let running = RunningLoop()
        try supervisor.watch(running.loop)
        let descriptor = boundSocket(datagramType, .unix(path: path))
        try waitUntilReadable(descriptor, "a sign of life")
        closeDescriptor(descriptor)
        try running.end()
    }

    @Test func `watching and not watching from many threads loses no loop`() throws {
        let manager = NotificationSocket()
        let supervisor = try manager.supervisor(watchdog: .milliseconds(2))
        let loops = (0..<4).map { _ in RunningLoop() }
        let threads = loops.map { running in
            plainThread {
                for _ in 0..<200 {
                    try supervisor.watch(running.loop)
                    supervisor.stopWatching(running.loop)
                }
                try supervisor.watch(running.loop)
            }
        }
        for thread in threads { try thread.join() }
        _ = manager.received()
        #expect(try manager.receive() == "WATCHDOG=1")
        for running in loops { try running.end() }
        try waitUntil("the thread ends with the last loop") { !supervisor.pulse.hasThread }
    }
}
