// Rules proved here:
// - A run in the common modes is refused: it returns `.finished` and notifies no observer.
// - Only the owning thread can run a loop. A run on another thread traps.
// - `run()` runs in `.default`, and ends on a stop or when the mode is empty.
// - `currentMode` and `runDepth` describe the innermost run.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct `What can be run` {
    @Test(arguments: [RunLoop.Mode.common, RunLoop.Mode(RunLoop.Mode.common.rawValue)])
    func `a run in the common modes is refused`(_ mode: RunLoop.Mode) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop, in: .common)
            let source = RunLoop.CustomSource { trace.add("source") }
            loop.add(source, forMode: .common)
            source.signal()
            #expect(loop.run(mode: mode, for: .seconds(1)) == .finished)
            #expect(loop.run(mode: mode, until: .distantFuture) == .finished)
            #expect(trace.take() == "")
            #expect(source.isSignaled)
            #expect(loop.modes == [.default])
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test func `run runs the default mode and ends when the mode is empty`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource(forMode: "other")
            loop.addTimer(at: clock.now + .seconds(1)) { _ in trace.add("\(loop.currentMode!)") }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "default")
        }
    }

    @Test func `run ends on a stop`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addTimer(at: clock.now + .seconds(1)) { _ in loop.stop() }
            #expect(loop.run() == .stopped)
        }
    }

    @Test func `run does not return after a source`() throws {
        try inManualTime { loop, clock, trace in
            loop.addSource(signaled: true) { _ in trace.add("source") }
            loop.addTimer(at: clock.now + .seconds(1)) { _ in loop.stop() }
            #expect(loop.run() == .stopped)
            #expect(trace.take() == "source")
        }
    }

    @Test func `there is a current mode only during a run`() throws {
        try inManualTime { loop, _, trace in
            #expect(loop.currentMode == nil)
            #expect(loop.runDepth == 0)
            loop.addIdleSource(forMode: "mine")
            let observer = RunLoop.Observer(activities: .all) { _, activity in
                trace.add("\(letter(of: activity)):\(loop.currentMode?.rawValue ?? "nil"):\(loop.runDepth)")
            }
            loop.add(observer, forMode: "mine")
            #expect(loop.run(mode: "mine", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E:mine:1 T:mine:1 S:mine:1 W:mine:1 A:mine:1 X:mine:1")
            #expect(loop.currentMode == nil)
            #expect(loop.runDepth == 0)
        }
    }

    // MARK: On the wrong thread

    @Test func `a run on another thread traps`() async {
        await #expect(processExitsWith: .failure) {
            try onFreshThread { loop in
                loop.addIdleSource()
                try plainThread { _ = loop.run(for: .zero) }.join()
            }
        }
    }

    @Test func `a run until a date on another thread traps`() async {
        await #expect(processExitsWith: .failure) {
            try onFreshThread { loop in
                loop.addIdleSource()
                try plainThread { _ = loop.run(until: .distantPast) }.join()
            }
        }
    }

    @Test func `run on another thread traps even if the mode is empty`() async {
        await #expect(processExitsWith: .failure) {
            try onFreshThread { loop in
                try plainThread { loop.run() }.join()
            }
        }
    }

    @Test func `a run on another thread traps while the owner runs it`() async {
        await #expect(processExitsWith: .failure) {
            let running = RunningLoop()
            let loop = running.loop
            try plainThread { _ = loop.run(mode: "other", for: .zero) }.join()
            try running.end()
        }
    }

    @Test func `a run of a loop whose thread has ended traps`() async {
        await #expect(processExitsWith: .failure) {
            let loop = try onFreshThread { $0 }
            try plainThread { _ = loop.run(for: .zero) }.join()
        }
    }
}
