// Rules proved here (semantics 1.10, 3.4; SignalWord.swift; Tests/Models/signal.pml checks every interleaving):
// - The loop performs a signal that a wake-up follows, even if another thread has given the same signal and not yet enqueued it.
// - A thread that enqueues late enqueues only the signal that it gave, and no later signal.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite(.tags(.lifetimes)) struct TwoSignallersTests {
    @Test func `a signal reaches the loop even if the thread that gave it first has not enqueued it yet`() throws {
        try onFreshThread { loop in
            let performed = Box(0)
            let source = RunLoop.CustomSource { performed.increment() }
            loop.add(source)
            // The first half of `signal()`, on a thread that is then preempted for a long time.
            let claim = source.signalWord.claim()
            source.signal()
            #expect(loop.run(until: .distantPast) == .timedOut)
            #expect(performed.value == 1)
            // The second half of `signal()`.
            source.signalWord.markEnqueued(claim!)  // no signal was pending
            #expect(!source.isSignaled)
            #expect(loop.run(until: .distantPast) == .timedOut)
            #expect(performed.value == 1)
        }
    }

    @Test func `a thread that enqueues late does not mark the next signal as enqueued`() throws {
        try onFreshThread { loop in
            let performed = Box(0)
            let source = RunLoop.CustomSource { performed.increment() }
            loop.add(source)
            let late = source.signalWord.claim()
            source.signal()
            #expect(loop.run(until: .distantPast) == .timedOut)
            // The next signal, from a thread that is also preempted.
            let isClaimed = source.signalWord.claim() != nil
            #expect(isClaimed)
            source.signalWord.markEnqueued(late!)  // no signal was pending
            source.signal()
            #expect(loop.run(until: .distantPast) == .timedOut)
            #expect(performed.value == 2)
        }
    }

    /// One thread signals and does not wake the loop; the other signals and wakes it. When the loop wakes up, the signal must be there.
    @Test func `no wake-up of two signallers is lost`() throws {
        let performed = Box(0)
        let source = RunLoop.CustomSource { performed.increment() }
        let running = RunningLoop { $0.add(source) }
        let loop = running.loop
        let rounds = 3_000 / roundsDivisor
        let round = Box(0)
        let other = plainThread {
            for next in 1...rounds {
                try waitUntil { round.value >= next }
                source.signal()
            }
        }
        for next in 1...rounds {
            try waitUntilAsleep(loop)
            let before = performed.value
            round.value = next
            source.signal()
            loop.wakeUp()
            try waitUntil { performed.value > before }
        }
        try other.join()
        try running.end()
        // Each round performs the source once or twice: several signals before a perform are one.
        #expect(performed.value >= rounds && performed.value <= 2 * rounds)
    }
}
