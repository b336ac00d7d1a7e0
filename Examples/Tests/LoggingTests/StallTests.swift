// Rules proved here (Watchdog+Logging.swift):
// - A stall is logged while it lasts, with the loop, the callout and its times as metadata.

import EventLoop
import EventLoopLogging
import EventLoopObserving
import InMemoryLogging
import Logging
import TestSupport
import Testing

@Suite(.bounded) struct StallTests {
    @Test func `a stall is logged while it lasts, with what is known of it as metadata`() throws {
        let handler = InMemoryLogHandler()
        let logger = Logger(label: "test") { _ in handler }
        let running = RunningLoop()
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5), logger: logger, level: .error) { _ in "worker" }
        watchdog.watch(running.loop)
        let mayGoOn = Gate()
        let line: UInt = #line + 1
        let timer = RunLoop.Timer(after: .milliseconds(1), label: "slow\nthing") { _ in mayGoOn.wait() }
        running.loop.add(timer)
        // On a busy machine, another callout may be slow, too.
        try waitUntil("the stall is logged") { handler.entries.contains { $0.metadata["kind"] == "timer" } }
        mayGoOn.open()
        let entry = try #require(handler.entries.first { $0.metadata["kind"] == "timer" })
        #expect(entry.level == .error && "\(entry.message)" == "a callout stalls its run loop")
        #expect(entry.metadata["loop"] == "worker" && entry.metadata["kind"] == "timer" && entry.metadata["label"] == "slow\nthing")
        #expect(entry.metadata["site"].map { "\($0)".hasSuffix("StallTests.swift:\(line)") } == true)
        let duration = try #require(entry.metadata["duration_ms"].flatMap { Double("\($0)") })
        let processorTime = try #require(entry.metadata["processor_time_ms"].flatMap { Double("\($0)") })
        #expect(duration >= 5 && processorTime >= 0 && processorTime <= duration + 1)
        if let backtrace = entry.metadata["backtrace"] {
            guard case .array(let lines) = backtrace else {
                Issue.record("\(backtrace)")
                return
            }
            #expect((1...8).contains(lines.count))
        }
        try running.end()
        watchdog.invalidate()
    }

    @Test func `a loop without a name is logged as its description names it`() throws {
        let handler = InMemoryLogHandler()
        let running = RunningLoop()
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5), logger: Logger(label: "test") { _ in handler })
        watchdog.watch(running.loop)
        let mayGoOn = Gate()
        running.loop.perform { mayGoOn.wait() }
        try waitUntil("the stall is logged") { !handler.entries.isEmpty }
        mayGoOn.open()
        let name = try #require(handler.entries.first?.metadata["loop"].map { "\($0)" })
        #expect(name.hasPrefix("RunLoop ") && running.loop.debugDescription.hasPrefix(name))
        #expect(handler.entries.first?.metadata["label"] == nil)
        try running.end()
        watchdog.invalidate()
    }

    @Test func `the loop of a thread is logged with the name of its thread`() throws {
        let handler = InMemoryLogHandler()
        let thread = try RunLoopThread(name: "a named worker")
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5), logger: Logger(label: "test") { _ in handler })
        watchdog.watch(thread.runLoop)
        let mayGoOn = Gate()
        thread.runLoop.perform { mayGoOn.wait() }
        try waitUntil("the stall is logged") { !handler.entries.isEmpty }
        mayGoOn.open()
        #expect(handler.entries.first?.metadata["loop"] == "a named worker")
        thread.stop()
        #expect(thread.join(timeout: patience))
        watchdog.invalidate()
    }
}
