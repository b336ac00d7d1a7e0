// Rules proved here: the ways in which well-known libraries use Foundation's run loop (UsagePatterns.swift) work with this one.
// - A wait ends when it should, by whichever thread; it serves the loop in the meantime, and may be nested.
// - A wait that nobody ends takes until its limit.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct UsagePatternTests {
    // MARK: XCTest

    @Test func `a waiter is fulfilled by a timer of its loop`() throws {
        try inManualTime { loop, clock, _ in
            let waiter = Waiter()
            Timer.scheduledTimer(withTimeInterval: 60, repeats: false) { _ in waiter.fulfill() }
            #expect(waiter.wait(timeout: 3600))
            #expect(clock.ms == 60_000)
        }
    }

    @Test func `a waiter is fulfilled by another thread`() throws {
        try onFreshThread { _ in
            let waiter = Waiter()
            let other = joinableThread { _ in waiter.fulfill() }
            #expect(waiter.wait(timeout: 3600))
            try other.join()
        }
    }

    @Test func `a waiter that nobody fulfills times out, and no sooner`() throws {
        try inManualTime { _, clock, _ in
            #expect(!Waiter().wait(timeout: 0.25))
            // The dates are a little earlier than the manual clock's, by the time that passes between two readings of the wall clock.
            #expect(clock.ms >= 249 && clock.ms <= 251)
        }
    }

    @Test func `a waiter in a callout of another one ends alone`() throws {
        try inManualTime { loop, clock, trace in
            let (outer, inner) = (Waiter(), Waiter())
            Timer.scheduledTimer(withTimeInterval: 1, repeats: false) { _ in
                Timer.scheduledTimer(withTimeInterval: 1, repeats: false) { _ in inner.fulfill() }
                trace.add("inner \(inner.wait(timeout: 3600))@\(clock.ms)")
            }
            Timer.scheduledTimer(withTimeInterval: 5, repeats: false) { _ in outer.fulfill() }
            trace.add("outer \(outer.wait(timeout: 3600))@\(clock.ms)")
            #expect(trace.description == "inner true@2000 outer true@5000")
        }
    }

    // MARK: Nimble

    @Test func `polling ends when the condition holds`() throws {
        try inManualTime { _, clock, trace in
            let outcome = Poll(interval: 0.01, timeout: 1).wait {
                if trace.list.count == 4 { return true }
                trace.add("@\(clock.ms)")
                return false
            }
            #expect(outcome == .completed)
            #expect(trace.description == "@10 @20 @30 @40")
            #expect(clock.ms == 50)
        }
    }

    @Test func `polling ends at its timeout, and leaves nothing behind`() throws {
        try inManualTime { loop, clock, _ in
            #expect(Poll(interval: 0.01, timeout: 1).wait { false } == .timedOut)
            #expect(clock.ms == 1_000)
            #expect(loop.run(mode: .default, before: .distantFuture) == false, "the mode is empty")
        }
    }

    @Test func `polling in a callout of polling ends first`() throws {
        try inManualTime { _, clock, trace in
            let isDone = Box(false)
            Timer.scheduledTimer(withTimeInterval: 0.1, repeats: false) { _ in
                trace.add("inner \(Poll(interval: 0.01, timeout: 0.05).wait { false })@\(clock.ms)")
                isDone.value = true
            }
            trace.add("outer \(Poll(interval: 0.02, timeout: 10).wait { isDone.value })@\(clock.ms)")
            #expect(trace.description == "inner timedOut@150 outer completed@160")
        }
    }

    @Test func `polling that another thread's loop watches times out`() throws {
        let watcher = try RunLoopThread(name: "watcher")
        defer { watcher.stop() }
        try onFreshThread { _ in
            #expect(Poll(interval: 0.001, timeout: 0.01, watcher: watcher.runLoop).wait { false } == .timedOut)
        }
    }

    @Test func `polling whose condition blocks the loop is reported as blocked`() throws {
        let watcher = try RunLoopThread(name: "watcher")
        defer { watcher.stop() }
        let (isBlocked, isNoticed) = (Gate(), Gate())
        // The time does not pass for the watcher before the condition blocks the loop: on a busy machine, the timeout could come first.
        watcher.runLoop.perform { isBlocked.wait() }
        let outcome = try onFreshThread { _ in
            Poll(interval: 0.001, timeout: 0.01, watcher: watcher.runLoop, grace: 0.01, whenBlocked: { isNoticed.open() }).wait {
                isBlocked.open()
                isNoticed.wait()
                return true
            }
        }
        #expect(outcome == .blockedRunLoop)
    }

    // MARK: PromiseKit

    @Test func `a wait for a promise ends when another thread resolves it, while the loop is asleep`() throws {
        let promise = Box<Promise<Int>?>(nil)
        let isReady = Gate()
        let thread = joinableThread { loop in
            promise.value = Promise()
            isReady.open()
            return promise.value!.hang()
        }
        isReady.wait()
        let resolving = joinableThread { _ in promise.value!.resolve(7) }
        #expect(try thread.join() == 7)
        try resolving.join()
    }

    @Test func `a promise that was resolved before the wait has its first value, and takes no time`() throws {
        try inManualTime { _, clock, _ in
            let promise = Promise<Int>()
            promise.resolve(1)
            promise.resolve(2)
            #expect(promise.hang() == 1)
            #expect(clock.ms == 0)
        }
    }

    // MARK: OpenCombine

    @Test func `a scheduler performs actions now, later, and on a grid`() throws {
        try inManualTime { loop, clock, trace in
            let scheduler = Scheduler(loop: loop)
            let start = scheduler.now
            scheduler.schedule(after: start.addingTimeInterval(2), tolerance: 0) { trace.add("later@\(seconds(clock))") }
            let cancel = scheduler.schedule(after: start.addingTimeInterval(1), interval: 1.5, tolerance: 0) {
                trace.add("grid@\(seconds(clock))")
            }
            scheduler.schedule { trace.add("now@\(seconds(clock))") }
            scheduler.schedule(after: start.addingTimeInterval(5), tolerance: 0) { cancel() }
            loop.run(until: start.addingTimeInterval(60))
            #expect(trace.description == "now@0.0 grid@1.0 later@2.0 grid@2.5 grid@4.0")
            #expect(seconds(clock) == 5, "the mode is empty after the cancellation")
        }
    }

    @Test func `a scheduler for several modes performs in each, once`() throws {
        try inManualTime { loop, _, trace in
            let scheduler = Scheduler(loop: loop, modes: [.default, "tracking"])
            scheduler.schedule(after: scheduler.now.addingTimeInterval(1), tolerance: 0) { trace.add("timer") }
            scheduler.schedule { trace.add("block") }
            _ = loop.run(mode: "tracking", before: Date(timeIntervalSinceNow: 2))
            _ = loop.run(mode: "tracking", before: Date(timeIntervalSinceNow: 2))
            #expect(trace.description == "block timer")
            #expect(!loop.run(mode: .default, before: .distantFuture))
        }
    }

    // MARK: RxSwift

    @Test func `a lock is opened by another thread`() throws {
        let lock = Box<RunLoopLock?>(nil)
        let (isReady, trace) = (Gate(), Trace())
        let thread = joinableThread { _ in
            lock.value = RunLoopLock()
            isReady.open()
            return lock.value!.run()
        }
        isReady.wait()
        lock.value!.dispatch { trace.add("action") }
        lock.value!.stop()
        #expect(try thread.join())
        #expect(trace.description == "action")
    }

    @Test func `a lock in an action of another lock is opened alone, and both wait for threads only`() throws {
        let (outer, inner) = (Box<RunLoopLock?>(nil), Box<RunLoopLock?>(nil))
        let (isReady, isNested, trace) = (Gate(), Gate(), Trace())
        let thread = joinableThread { _ in
            outer.value = RunLoopLock()
            outer.value!.dispatch {
                inner.value = RunLoopLock()
                isNested.open()
                trace.add("inner \(inner.value!.run())")
            }
            isReady.open()
            trace.add("outer \(outer.value!.run())")
        }
        isReady.wait()
        isNested.wait()
        inner.value!.stop()
        outer.value!.stop()
        try thread.join()
        #expect(trace.description == "inner true outer true")
    }

    @Test func `a lock that nobody opens times out`() throws {
        try inManualTime { _, clock, _ in
            #expect(!RunLoopLock().run(timeout: 60))
            #expect(seconds(clock) == 60)
        }
    }
}

/// The manual clock in tenths of a second: a date is converted with the time that has passed on the wall clock.
private func seconds(_ clock: RunLoop.ManualClock) -> Double { (Double(clock.ms) / 100).rounded() / 10 }
