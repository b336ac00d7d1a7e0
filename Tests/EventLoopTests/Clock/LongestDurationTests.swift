// Every public call that takes a duration saturates (semantics 1.11): the longest durations of Swift have more seconds than 64 bits hold, and the
// shortest are as far in the past.

import EventLoop
import EventLoopMessagePorts
import EventLoopTestSupport
import Testing

/// More seconds than an Int64 has, and their opposite; then the longest whose seconds are one.
private let extremes: [Duration] = {
    let most = Duration.seconds(Int64.max)
    return [most * 15, .zero - most * 15, most + most, most, .zero - most, .nanoseconds(Int64.max), .nanoseconds(Int64.min)]
}()

/// A call with a duration. It returns at once, or what it began is cancelled by the end of the loop.
private struct TimedCall: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let make: @Sendable (RunLoop, Duration) throws -> Void

    init(_ name: String, _ make: @escaping @Sendable (RunLoop, Duration) throws -> Void) { (testDescription, self.make) = (name, make) }
}

private let calls: [TimedCall] = [
    TimedCall("Instant.advanced(by:)") { _, duration in
        let moved = RunLoop.Instant(nanoseconds: 0).advanced(by: duration)
        #expect(duration > .zero ? moved > .now : moved < .now)
    },
    TimedCall("Instant + and -") { _, duration in
        let instant = RunLoop.Instant(nanoseconds: 0)
        #expect((instant + duration < instant - duration) == (duration < .zero))
    },
    TimedCall("run(for:)") { loop, duration in
        loop.perform { loop.stop() }
        _ = loop.run(for: duration)
    },
    TimedCall("Timer(interval:tolerance:)") { loop, duration in
        let timer = RunLoop.Timer(fireAt: .distantFuture, interval: abs(duration), tolerance: abs(duration)) { _ in }
        loop.add(timer)
        timer.invalidate()
    },
    TimedCall("Timer(after:)") { _, duration in RunLoop.Timer.scheduled(after: duration) { _ in }.invalidate() },
    TimedCall("Timer(every:)") { _, duration in RunLoop.Timer.scheduled(every: duration) { _ in }.invalidate() },
    TimedCall("perform(after:)") { loop, duration in loop.perform(after: abs(duration)) {} },
    TimedCall("ManualClock.advance(by:)") { _, duration in RunLoop.ManualClock().advance(by: abs(duration)) },
    TimedCall("clock.sleep(until:tolerance:)") { loop, duration in
        let task = Task(executorPreference: loop) { try await loop.clock.sleep(until: .distantFuture, tolerance: abs(duration)) }
        _ = loop.run(for: .zero)
        task.cancel()
        _ = loop.run(for: .zero)
    },
    TimedCall("withTimeout") { loop, duration in
        let task = Task(executorPreference: loop) { try await loop.withTimeout(abs(duration)) {} }
        for _ in 0..<10 { _ = loop.run(for: .zero) }
        task.cancel()
    },
    TimedCall("SocketSource(connectingTo:timeout:)") { loop, duration in
        let source = try RunLoop.SocketSource(connectingTo: .ipv4(host: "127.0.0.1", port: 1), timeout: duration) { _, _ in }
        loop.add(source)
        source.invalidate()
    },
    TimedCall("RunLoopThread(drainLimit:)") { _, duration in
        let thread = try RunLoopThread(name: "limit", drainLimit: abs(duration), setup: { _ in }, teardown: { _, _ in })
        thread.stop(drainingFor: abs(duration))
        #expect(thread.join(timeout: abs(duration)))
    },
    TimedCall("RunLoopThreadGroup.shutdown(drainingFor:)") { _, duration in
        let group = try RunLoopThreadGroup(count: 1, drainLimit: abs(duration), setup: { _ in }, teardown: { _, _ in })
        group.shutdown(drainingFor: abs(duration))
    },
    TimedCall("RunLoopThreadGroup.shutdown(timeout:)") { _, duration in
        let group = try RunLoopThreadGroup(count: 1)
        #expect(group.shutdown(timeout: abs(duration)).isEmpty)
    },
    TimedCall("performAndWait(timeout:)") { loop, duration in try loop.performAndWait(timeout: duration) {} },
    TimedCall("Histogram.record") { _, duration in
        var histogram = RunLoop.Histogram()
        histogram.record(duration)
    },
    TimedCall("RemoteMessagePort.send(timeout:)") { _, duration in
        _ = try? RunLoop.RemoteMessagePort(name: "eventloop.nobody.has.this", timeout: .zero - abs(duration))
    },
]

private func abs(_ duration: Duration) -> Duration { duration < .zero ? .zero - duration : duration }

@Suite(.bounded) struct LongestDurationTests {
    @Test(arguments: calls) private func `no call traps for the longest and the shortest durations`(_ call: TimedCall) throws {
        for duration in extremes { try onFreshThread { loop in try call.make(loop, duration) } }
    }
}
