// Stops and wake-ups: semantics 1.9 and 1.10.
//
// - A stop ends the innermost run. Without a run it has no effect, and the loop does not remember it. The run checks for a stop at the end
//   of the pass; the rest of the pass's notifications are still delivered.
// - A wake-up restarts the pass and never ends a run. Several wake-ups coalesce until the loop takes them. The loop keeps a wake-up from
//   the start of a pass to its sleep.

internal import Testing

@Suite struct StopAndWakeUpTests {
    // MARK: Stops

    @Test func `a stop without a run has no effect`() throws {
        try both("E T S X =timedOut E T S X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.stop()
            s.run(limit: 0)
            s.stop()
            s.run(limit: 0)
        }
    }

    @Test(
        arguments: [
            ("E", "E X =stopped"),
            ("T", "E T S W A X =stopped"),
            ("S", "E T S W A X =stopped"),
            ("W", "E T S W A X =stopped"),
        ])
    func `a stop in an observer ends the run without a sleep, after the rest of the pass`(letter: String, trace: String) throws {
        try both(trace) { s in
            s.observe { if $0 == "\(letter)1" { s.stop() } }
            s.keepAlive()
            s.run()
        }
    }

    @Test func `a stop after waiting ends the run after the event that woke it is served`() throws {
        try both("E T S W A t X =stopped") { s in
            s.observe { if $0 == "A1" { s.stop() } }
            s.keepAlive()
            s.dueTimer("t")
            s.run()
        }
    }

    @Test func `a stop on exit is too late, and has no effect`() throws {
        try both("E T S X =timedOut E T S X =timedOut") { s in
            s.observe { if $0 == "X1" { s.stop() } }
            s.keepAlive()
            s.run(limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `a stop on entry is used up by that run`() throws {
        try both("E X =stopped E T S X =timedOut") { s in
            s.observe { if $0 == "E1" { s.stop() } }
            s.keepAlive()
            s.run()
            s.run(limit: 0)
        }
    }

    @Test func `a stop on entry leaves signaled sources, due timers and blocks for the next run`() throws {
        try both("E X =stopped E T S b a t X =timedOut") { s in
            s.observe { if $0 == "E1" { s.stop() } }
            s.source("a")
            s.dueTimer("t")
            s.block("b")
            s.signal("a")
            s.run()
            // CF, which serves one event in a pass, would take the stop's wake-up instead of the timer.
            s.run(limit: 0)
        }
    }

    @Test func `a stop in a source ends the run without a sleep, after all sources of the pass`() throws {
        try both("E T S a b X =stopped") { s in
            s.observe()
            s.source("a") { _ in s.stop() }
            s.source("b")
            s.signal("a", "b")
            s.run()
        }
    }

    @Test func `a stop in a timer ends the run after all timers of the pass`() throws {
        try both("E T S W A t u X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.dueTimer("t") { _ in s.stop() }
            s.dueTimer("u")
            s.run()
        }
    }

    @Test func `a stop in a block ends the run after all blocks of the batch`() throws {
        try both("E T S b c W A X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.block("b") { s.stop() }
            s.block("c")
            s.run()
        }
    }

    @Test func `a stop in a block at the end of a pass ends the run`() throws {
        try both("E T S W A t b X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.dueTimer("t") { _ in s.block("b") { s.stop() } }
            s.run()
        }
    }

    @Test func `two stops end one run`() throws {
        try both("E T S a X =stopped E T S X =timedOut") { s in
            s.observe()
            s.source("a") { _ in
                s.stop()
                s.stop()
            }
            s.signal("a")
            s.run()
            s.run(limit: 0)
        }
    }

    @Test func `a stop from another thread ends the sleep`() throws {
        try both("E T S W A X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.whenWaiting { s.stop() }
            s.run()
        }
    }

    @Test func `a stop from another thread during a callout takes effect after the callout`() throws {
        try both("E T S a stopped end X =stopped") { s in
            s.observe()
            s.source("a") { _ in
                s.onAnotherThread { _ in s.stop() }
                s.note("stopped")
                s.note("end")
            }
            s.signal("a")
            s.run()
        }
    }

    @Test func `a stop ends a run that returns after a source`() throws {
        try both("E T S W A t X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.dueTimer("t") { _ in s.stop() }
            s.run(returnAfterSource: true)
        }
    }

    @Test func `a stop ends a run without a limit`() throws {
        try both("E T S W A X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.whenWaiting { s.stop() }
            s.run(limit: .infinity)
        }
    }

    // MARK: Wake-ups

    @Test func `a wake-up without a run has no effect`() throws {
        try both("E T S W A t X =stopped") { s in
            s.observe()
            s.timer("t", in: 10) { _ in s.stop() }
            s.wakeUp()
            s.run()
        }
    }

    @Test func `a wake-up makes one more pass`() throws {
        try both("E T S W A T S W A X =stopped") { s in
            s.observe { if $0 == "W2" { s.stop() } }
            s.keepAlive()
            s.whenWaiting { s.wakeUp() }
            s.run()
        }
    }

    @Test(arguments: ["T", "S", "W"])
    func `a wake-up between the start of a pass and its sleep ends that sleep`(letter: String) throws {
        try both("E T S W A T S W A X =stopped") { s in
            s.observe { at in
                if at == "\(letter)1" { s.wakeUp() }
                if at == "W2" { s.stop() }
            }
            s.keepAlive()
            s.run()
        }
    }

    @Test func `a wake-up in a block before the sleep ends that sleep`() throws {
        try both("E T S b W A T S W A X =stopped") { s in
            s.observe { if $0 == "W2" { s.stop() } }
            s.keepAlive()
            s.block("b") { s.wakeUp() }
            s.run()
        }
    }

    @Test func `several wake-ups before the sleep coalesce`() throws {
        try both("E T S W A T S W A t X =stopped") { s in
            s.observe { at in
                if at == "S1" { for _ in 1...5 { s.wakeUp() } }
                if at == "W2" { s.timer("t", in: 5) { _ in s.stop() } }
            }
            s.keepAlive()
            s.run()
        }
    }

    @Test func `the pass that does not sleep takes a wake-up from a source`() throws {
        try both("E T S a T S W A t X =stopped") { s in
            s.observe { if $0 == "W1" { s.timer("t", in: 5) { _ in s.stop() } } }
            s.source("a") { _ in s.wakeUp() }
            s.signal("a")
            s.run()
        }
    }

    @Test func `a wake-up does not prolong a run with a limit of zero`() throws {
        try both("E T S X =timedOut") { s in
            s.observe { if $0 == "S1" { s.wakeUp() } }
            s.keepAlive()
            s.run(limit: 0)
        }
    }
}
