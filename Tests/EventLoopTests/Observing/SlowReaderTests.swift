// Rules proved here (semantics 23.6), with a reader of the reports that is slower than the loops stall:
// - A loop that is watched while stalls keep coming is watched at once.
// - A limited number of stalls waits for its reports.

import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopObserving

private let threshold: Duration = .milliseconds(1)

/// A loop with one callout after another, each of which lasts until the test lets it end.
private final class CalloutChain: Sendable {
    let running = RunningLoop()
    private let begun = Box(0)
    private let mayEnd = Box(0)
    private let isOver = Box(false)

    init() throws {
        let loop = running.loop
        loop.beginObservingCallouts()
        try waitUntil("the loop publishes its callouts") { loop.hasAdoptedObservation }
        // The step in which the loop has begun to publish is over.
        try loop.performAndWait {}
    }

    /// Begins the first callout. Returns when it has lasted as long as the threshold.
    func start() throws {
        running.loop.perform { self.callOut() }
        try waitForCallout(1)
    }

    /// Ends the callout in progress. Returns when the next one has lasted as long as the threshold.
    func next() throws {
        let number = begun.value
        mayEnd.value = number
        try waitForCallout(number + 1)
    }

    /// Ends the callout in progress, and the loop.
    func end() throws {
        isOver.value = true
        running.loop.endObservingCallouts()
        try running.end()
    }

    private func waitForCallout(_ number: Int) throws {
        try waitUntil("the callout begins") { begun.value >= number }
        let since = RunLoop.Instant.now
        try waitUntil("the callout is a stall") { RunLoop.Instant.now - since >= threshold * 2 }
    }

    private func callOut() {
        if isOver.value { return }
        let number = begun.increment()
        running.loop.perform { self.callOut() }
        do { try waitUntil("the callout may end") { mayEnd.value >= number || isOver.value } } catch { Issue.record(error) }
    }
}

@Suite(.bounded, .tags(.threads)) struct SlowReaderTests {
    @Test func `a loop that is watched while stalls keep coming is watched at once`() throws {
        let (chain, late) = (try CalloutChain(), RunningLoop())
        let (reports, isOver, lateReport) = (Box(0), Box(false), Box<Int?>(nil))
        let isStuck = Gate()
        late.loop.perform {
            isStuck.open()
            do { try waitUntil("the late loop is reported") { lateReport.value != nil } } catch { Issue.record(error) }
        }
        isStuck.wait()
        let weak = WeakReference<RunLoop.Watchdog>()
        let watchdog = RunLoop.Watchdog(threshold: threshold) { [loop = chain.running.loop] stall in
            if stall.loop === late.loop, lateReport.value == nil { lateReport.value = reports.value }
            if stall.loop !== loop || isOver.value { return }
            // Each report takes until there is the next stall to report.
            if reports.increment() == 1 { weak.value?.watch(late.loop) }
            do {
                if reports.value < 20 { try chain.next() } else { isOver.value = true }
            } catch { Issue.record(error) }
        }
        weak.value = watchdog
        watchdog.watch(chain.running.loop)
        try chain.start()
        try waitUntil("there were many reports") { isOver.value }
        try waitUntil("the late loop is reported") { lateReport.value != nil }
        let reportsBefore = try #require(lateReport.value)
        #expect(reportsBefore < 20, "the loop was reported only when no more stalls came")
        watchdog.invalidate()
        try chain.end()
        try late.end()
    }

    @Test func `a limited number of stalls waits for its reports`() throws {
        let chain = try CalloutChain()
        let most = WatchdogRound.mostStalls
        var round = WatchdogRound()
        let entries = (1...UInt64(most)).map { number in
            WatchdogThread.Entry(
                loopID: chain.running.loop.id, watch: WatchdogWatch(threshold: threshold) { _ in }, since: TickClock.ticks, number: number)
        }
        round.take(entries, 1)
        try chain.start()
        round.look()
        #expect(round.stalls.count == most)
        try chain.next()
        round.look()
        #expect(round.stalls.count == most)
        // There is room again.
        let taken = round.nextStall()
        #expect(taken != nil)
        round.look()
        #expect(round.stalls.count == 2 * most - 1)
        try chain.end()
    }
}
