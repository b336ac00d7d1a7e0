// The code of README.md that is not its server, compiled and run.

import EventLoop
import EventLoopTestSupport
import EventLoopTesting
import Testing

@Suite(.bounded) struct DocumentedReadme {
    @Test func `an actor runs on the thread of its loop`() async throws {
        actor Meter {
            private let loop: RunLoop
            private var total = 0
            init(on loop: RunLoop) { self.loop = loop }
            nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
            func add(_ count: Int) { total += count }
        }

        let thread = try RunLoopThread(name: "meter")
        await Meter(on: thread.runLoop).add(3)  // on that thread, beside its timers and sources

        thread.stop()
        #expect(await thread.join(timeout: patience))
    }

    @Test(.runLoop(.manualTime(autoAdvance: true)))
    func `an hour takes no time`() {
        RunLoop.current.perform(after: .seconds(3600)) { RunLoop.current.stop() }
        #expect(RunLoop.current.run(for: .seconds(7200)) == .stopped)
    }
}
