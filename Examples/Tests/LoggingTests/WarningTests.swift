// Rules proved here (RunLoop+Warnings.swift):
// - A warning is logged with its kind as metadata.

import EventLoop
import EventLoopLogging
import InMemoryLogging
import Logging
import TestSupport
import Testing

@Suite(.bounded) struct WarningTests {
    @Test func `a warning is logged with its kind`() async {
        // The handler belongs to the process.
        await #expect(processExitsWith: .success) {
            let handler = InMemoryLogHandler()
            RunLoop.logWarnings(to: Logger(label: "test") { _ in handler })
            try onFreshThread { loop in _ = loop.run(mode: .common, for: .zero) }
            let entry = try #require(handler.entries.first { $0.metadata["kind"] == "runOfCommonModes" }, "\(handler.entries)")
            #expect(entry.level == .warning && !"\(entry.message)".isEmpty)
        }
    }
}
