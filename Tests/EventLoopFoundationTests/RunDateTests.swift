// Rules proved here, for the Foundation forms of running (docs/foundation.md):
// - run(until:) runs the loop again after sources and stops until its date; it returns immediately if the mode is empty.
// - run(mode:before:) runs once, until a source, the date or a stop; it returns false only if there is no run.
// - limitDate makes one pass; acceptInput runs once.
// - A date is converted with the wall clock once; dates out of range saturate; no run or timer is early.
// - A stop of the thread ends all of them.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport
import Testing

/// An hour, give or take the time that passes on the wall clock between the creation of a date and the call that receives it.
private let anHour: ClosedRange<Int64> = (3_600_000 - 5_000)...3_600_000
private var inAnHour: Date { Date(timeIntervalSinceNow: 3600) }

@Suite struct RunUntilDateTests {
    @Test func `a run until a date continues after sources`() throws {
        try inManualTime { loop, clock, trace in
            for seconds in [60, 120, 180] { loop.perform(after: .seconds(seconds)) { loop.perform { trace.add("source") } } }
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.run(until: inAnHour)
            #expect(trace.description == "source source source")
            #expect(anHour.contains(clock.ms))
        }
    }

    @Test func `a stop ends one of the runs inside a run until a date, not the whole call`() throws {
        try inManualTime { loop, clock, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            trace.observe(loop)
            loop.perform(after: .seconds(60)) { loop.stop() }
            loop.run(until: inAnHour)
            #expect(trace.description == "E T S W A X E T S W A X")
            #expect(anHour.contains(clock.ms))
        }
    }

    @Test func `a run until a date ends when the mode becomes empty`() throws {
        try inManualTime { loop, clock, _ in
            loop.add(RunLoop.Timer(fireAt: .ms(60_000)) { _ in })
            loop.run(until: inAnHour)
            #expect(clock.ms == 60_000)
        }
    }

    @Test func `a run until a date in an empty mode returns immediately, and notifies no observer`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.run(until: .init(timeIntervalSinceNow: 3600))
            #expect(trace.description == "")
            #expect(clock.ms == 0)
        }
    }

    @Test(arguments: [Date.distantPast, Date(timeIntervalSinceNow: -1), Date()])
    func `a run until a past date makes one pass without sleeping`(date: Date) throws {
        try inManualTime { loop, _, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            trace.observe(loop)
            loop.run(until: date)
            #expect(trace.take() == "E T S X")
            #expect(loop.run(mode: .default, before: date))
            #expect(trace.take() == "E T S X")
        }
    }

    @Test func `a distant future sets no limit, and neither does a date that is not a number`() throws {
        for date in [Date.distantFuture, Date(timeIntervalSinceReferenceDate: .infinity), Date(timeIntervalSinceReferenceDate: .nan)] {
            try inManualTime { loop, clock, trace in
                loop.add(RunLoop.Timer(fireAt: RunLoop.Instant(nanoseconds: .max - 1)) { _ in trace.add("at the end of time") })
                loop.run(until: date)
                #expect(trace.description == "at the end of time")
                #expect(clock.now.nanoseconds == .max - 1)
            }
        }
    }

    @Test func `on the wall clock neither a run nor a timer is early`() throws {
        let early = try onFreshThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let early = Box<[String]>([])
            for microseconds in [1, 10, 99, 500, 1_234, 5_000, 10_001] {
                let date = Date(timeIntervalSinceNow: Double(microseconds) * 1e-6)
                loop.add(
                    Timer(fire: date, interval: 0, repeats: false) { _ in
                        if Date() < date { early.change { $0.append("timer \(microseconds)") } }
                    })
                loop.run(until: date)
                if Date() < date { early.change { $0.append("run \(microseconds)") } }
                let again = Date(timeIntervalSinceNow: Double(microseconds) * 1e-6)
                _ = loop.run(mode: .default, before: again)
                if Date() < again { early.change { $0.append("run before \(microseconds)") } }
            }
            return early.value
        }
        #expect(early == [])
    }

    @Test(arguments: ["until", "before"])
    func `a stop of the thread ends a Foundation run, and the thread refuses the next run`(form: String) throws {
        let results = Box<[Bool]>([])
        let isInside = Box(false)
        let thread = try RunLoopThread(name: "told to stop")
        thread.runLoop.perform {
            let loop = RunLoop.main.isCurrent ? RunLoop.main : RunLoop.current
            loop.perform { isInside.value = true }
            if form == "until" {
                loop.run(until: Date.distantFuture)
            } else {
                while loop.run(mode: .default, before: .distantFuture) {}  // ends: when the thread stops
            }
            results.change { $0.append(false) }
            let next = loop.run(mode: .default, before: .distantFuture)
            results.change { $0.append(next) }
        }
        try waitUntil { isInside.value && thread.runLoop.isWaiting }
        thread.stop()
        #expect(thread.join(timeout: patience))
        #expect(results.value == [false, false])
    }
}

@Suite(.bounded) struct RunBeforeDateTests {
    @Test func `a run before a date returns true after one source`() throws {
        try inManualTime { loop, clock, trace in
            loop.addSource(order: 1, signaled: true) { _ in trace.add("first") }
            loop.addSource(order: 2, signaled: true) { _ in trace.add("second") }
            #expect(loop.run(mode: .default, before: inAnHour))
            #expect(trace.take() == "first")
            #expect(loop.run(mode: .default, before: inAnHour))
            #expect(trace.take() == "second")
            #expect(clock.ms == 0)
        }
    }

    @Test func `a run before a date returns true at the date, and after a stop`() throws {
        try inManualTime { loop, clock, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.perform(after: .seconds(60)) { loop.stop() }
            #expect(loop.run(mode: .default, before: inAnHour))
            #expect(clock.ms == 60_000)
            #expect(loop.run(mode: .default, before: inAnHour))
            #expect(clock.ms > 3_600_000)
        }
    }

    @Test func `a timer does not end a run before a date, unless the mode is empty afterwards`() throws {
        try inManualTime { loop, clock, trace in
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("first") })
            loop.add(RunLoop.Timer(fireAt: .ms(20)) { _ in trace.add("second") })
            #expect(loop.run(mode: .default, before: inAnHour))
            #expect(trace.description == "first second")
            #expect(clock.ms == 20)
            #expect(!loop.run(mode: .default, before: inAnHour))
        }
    }

    @Test(arguments: [RunLoop.Mode.default, .common, "never made"])
    func `a run in an empty, unknown or common mode returns false, and notifies no observer`(mode: RunLoop.Mode) throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            if mode == .common { _ = loop.addIdleSource(forMode: .common) }
            #expect(!loop.run(mode: mode, before: .distantFuture))
            #expect(trace.description == "")
            #expect(loop.currentMode == nil)
        }
    }

    @Test func `a mode that has only become common contains the common items, so it can run`() throws {
        try inManualTime { loop, _, trace in
            loop.perform { trace.add("performed") }
            loop.addCommonMode("late")
            #expect(loop.run(mode: "late", before: .distantFuture))
            #expect(trace.description == "performed")
        }
    }

    @Test func `a run before a date on a loop whose thread has ended is a precondition failure, as on any other thread`() async {
        await #expect(processExitsWith: .failure) {
            let loop = try onFreshThread { $0 }
            _ = try plainThread { loop.run(mode: .default, before: Date()) }.join()
        }
    }
}

@Suite struct LimitDateAndAcceptInputTests {
    @Test func `limitDate fires due timers, and returns the next date`() throws {
        try inManualTime { loop, clock, trace in
            loop.add(RunLoop.Timer(fireAt: .ms(0)) { _ in trace.add("due") })
            loop.add(RunLoop.Timer(fireAt: .ms(3_600_000)) { _ in trace.add("in an hour") })
            let date = try #require(loop.limitDate(forMode: .default))
            #expect(abs(date.timeIntervalSinceNow - 3600) < 5)
            #expect(trace.description == "due")
            #expect(clock.ms == 0)
        }
    }

    @Test func `limitDate is nil for an empty mode, even if its own pass emptied the mode`() throws {
        try inManualTime { loop, _, trace in
            #expect(loop.limitDate(forMode: .default) == nil)
            #expect(loop.limitDate(forMode: .common) == nil)
            loop.add(RunLoop.Timer(fireAt: .ms(0)) { _ in trace.add("due") })
            #expect(loop.limitDate(forMode: .default) == nil)
            #expect(trace.description == "due")
        }
    }

    @Test func `limitDate is the distant future if no timer has a date`() throws {
        try inManualTime { loop, _, _ in
            loop.addIdleSource()
            #expect(loop.limitDate(forMode: .default) == .distantFuture)
        }
    }

    @Test(arguments: ["kCFRunLoopDefaultMode", "NSDefaultRunLoopMode"])
    func `a run in a mode with Foundation's text for the default mode waits for the items of the default mode`(name: String) throws {
        try inManualTime { loop, clock, _ in
            loop.perform(after: .seconds(60)) { loop.perform {} }
            #expect(loop.run(mode: .init(name), before: .distantFuture))
            #expect(clock.ms == 60_000)
            let items = RunLoop.Timer(fireAt: .ms(0)) { _ in }
            loop.add(items, forMode: RunLoop.Mode(name))
            #expect(loop.contains(items, forMode: .default))
            #expect(loop.modes == [.default])
        }
    }

    @Test func `a stop under XCTest's name ends the innermost run`() throws {
        try inManualTime { loop, clock, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.perform(after: .seconds(60)) { loop._stop() }
            #expect(loop.run(mode: .default, before: .distantFuture))
            #expect(clock.ms == 60_000)
        }
    }

    @Test(arguments: ["kCFRunLoopDefaultMode", "NSDefaultRunLoopMode"])
    func `acceptInput runs once, and accepts Foundation's names of modes`(name: String) throws {
        try inManualTime { loop, _, trace in
            loop.perform(inModes: ["own"]) { trace.add("own") }
            loop.perform { trace.add("default") }
            loop.acceptInput(forMode: "own", before: .distantFuture)
            #expect(trace.take() == "own")
            loop.acceptInput(forMode: name, before: .distantFuture)
            #expect(trace.take() == "default")
            loop.perform { trace.add("again") }
            loop.acceptInput(forMode: .default, before: .distantFuture)
            #expect(trace.take() == "again")
            // The common modes cannot run, under any name.
            loop.addIdleSource(forMode: .common)
            trace.observe(loop)
            for common in ["kCFRunLoopCommonModes", "NSRunLoopCommonModes"] { loop.acceptInput(forMode: common, before: .distantFuture) }
            #expect(trace.take() == "")
        }
    }
}
