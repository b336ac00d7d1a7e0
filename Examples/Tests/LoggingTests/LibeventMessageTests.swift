// Rules proved here (RunLoop+LibeventMessages.swift):
// - libevent's messages reach the logger, at the level of their severity.

import CLibevent
import EventLoop
import EventLoopLogging
import InMemoryLogging
import Logging
import TestSupport
import Testing

@Suite(.bounded) struct LibeventMessageTests {
    @Test func `libevent's messages reach the logger at their level`() async {
        // The handler belongs to the process.
        await #expect(processExitsWith: .success) {
            let handler = InMemoryLogHandler()
            var logger = Logger(label: "test") { _ in handler }
            logger.logLevel = .trace
            RunLoop.logLibeventMessages(to: logger)
            try onFreshThread { loop in
                loop.withEventBase { base in
                    // epoll refuses a descriptor that is not open, and libevent warns.
                    let event = event_new(base, 9_999, Int16(EV_READ), { _, _, _ in }, nil)
                    event_add(event, nil)
                    event_free(event)
                }
            }
            let entry = try #require(handler.entries.first { $0.level == .warning }, "\(handler.entries)")
            #expect(entry.metadata["library"] == "libevent" && !"\(entry.message)".isEmpty)
        }
    }
}
