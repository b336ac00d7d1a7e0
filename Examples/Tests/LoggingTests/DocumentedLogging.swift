// The code of docs/services.md about logs, compiled and run.

import EventLoop
import EventLoopLogging
import EventLoopObserving
import InMemoryLogging
import Logging
import TestSupport
import Testing

@Suite(.bounded) struct DocumentedLogging {
    @Test func `warnings, libevent's messages and stalls of a group are logged`() async {
        // The handlers belong to the process.
        await #expect(processExitsWith: .success) {
            let handler = InMemoryLogHandler()
            let logger = Logger(label: "test") { _ in handler }
            let group = try RunLoopThreadGroup(count: 2, name: "server")

            RunLoop.logWarnings(to: logger)
            RunLoop.logLibeventMessages(to: logger)
            let watchdog = RunLoop.Watchdog(threshold: .milliseconds(250), logger: logger)
            for loop in group.runLoops { watchdog.watch(loop) }

            let isLogged: @Sendable () -> Bool = { handler.entries.contains { $0.message == "a callout stalls its run loop" } }
            group.next().perform { try? waitUntil("the stall is logged") { isLogged() } }
            try waitUntil("the stall is logged") { isLogged() }
            watchdog.invalidate()
            await group.shutdown()
        }
    }
}
