// Timers: semantics 5.1, 5.4, 5.5, 5.8 to 5.12, and 1.19.
//
// - A timer fires in a pass of a run of one of its modes, once its date is reached. One-shots are valid in their callout; after it they are
//   invalid and in no mode.
// - All due timers fire in one pass, by date; `order` has no effect. Before each fire the loop checks the timers again.
// - A timer that another timer's callout adds waits for the next pass.
// - Timers are never starved.
//
// The dates are past or far apart, or the scenario waits for them before the run, so that load does not change the trace. CF replaces a
// date that is past at creation or setting by the present (5.7), so two such timers fire in the order they were made.

internal import Testing

@Suite struct TimerTests {
    // MARK: One fire

    @Test func `a due timer fires after waiting, in the first pass`() throws {
        try both("E T S W A t X =finished") { s in
            s.observe()
            s.dueTimer("t")
            s.run()
        }
    }

    @Test func `with limit zero a due timer fires without a sleep`() throws {
        try both("E T S t X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.dueTimer("t")
            s.run(limit: 0)
        }
    }

    @Test func `a timer that is not due does not fire`() throws {
        try both("E T S X =timedOut") { s in
            s.observe()
            s.timer("t", in: Stage.never)
            s.run(limit: 0)
        }
    }

    @Test func `a timer ends the sleep at its date, and not before`() throws {
        try both("E T S W A t early:false X =finished") { s in
            s.observe()
            let date = s.elapsed + 20
            s.timer("t", in: 20) { _ in s.note("early", s.elapsed < date - 5) }  // CF reads two clocks, one after the other
            s.run()
        }
    }

    @Test func `a one-shot is valid and in its mode during the callout, and invalid and in no mode after it`() throws {
        try both("t t-valid:true t@default:true =timedOut t-valid:false t@default:false t@m:false") { s in
            s.keepAlive()
            s.dueTimer("t", modes: ["default", "m"]) { _ in
                s.askIsValid("t")
                s.askContains("t")
            }
            s.run(limit: 0)
            s.askIsValid("t")
            s.askContains("t")
            s.askContains("t", in: "m")
        }
    }

    @Test func `a negative interval makes a one-shot`() throws {
        try both("E T S W A t X =finished t-valid:false") { s in
            s.observe()
            s.dueTimer("t", interval: -5)
            s.run()
            s.askIsValid("t")
        }
    }

    @Test func `a timer whose mode does not run does not fire`() throws {
        try both("end t@default:true t-valid:true") { s in
            s.dueTimer("t")
            s.work(3)
            s.note("end")
            s.askContains("t")
            s.askIsValid("t")
        }
    }

    @Test func `a timer removed before its date does not fire`() throws {
        try both("E T S X =timedOut t-valid:true") { s in
            s.observe()
            s.keepAlive()
            s.dueTimer("t")
            s.remove("t")
            s.run(limit: 0)
            s.askIsValid("t")
        }
    }

    @Test func `a timer removed and added again fires`() throws {
        try both("E T S W A t X =finished") { s in
            s.observe()
            s.dueTimer("t")
            s.remove("t")
            s.add("t")
            s.run()
        }
    }

    @Test func `an invalid timer cannot be added`() throws {
        try both("t@default:false =finished") { s in
            s.dueTimer("t", modes: [])
            s.invalidate("t")
            s.add("t")
            s.askContains("t")
            s.run()
        }
    }

    @Test func `a timer added twice to a mode fires once`() throws {
        try both("E T S W A t X =finished") { s in
            s.observe()
            s.dueTimer("t", modes: ["default", "default"])
            s.run()
        }
    }

    @Test func `a timer in several modes fires once for each slot`() throws {
        try both("t m:=finished n:=finished") { s in
            s.dueTimer("t", modes: ["m", "n"])
            s.run("m")
            s.run("n")
        }
    }

    // MARK: Several at once

    @Test func `timers that are due together fire in one pass by date, whatever the order of adding`() throws {
        try both("E T S W A early late latest X =finished") { s in
            s.observe()
            s.timer("latest", in: 30)
            s.timer("early", in: 10)
            s.timer("late", in: 20)
            s.work(31)
            s.run()
        }
    }

    @Test func `timers with equal dates fire in the order they were made and added, whatever their order`() throws {
        try both("E T S W A a b c X =finished") { s in
            s.observe()
            s.timer("a", in: Stage.past, order: 9)
            s.timer("b", in: Stage.past, order: 5)
            s.timer("c", in: Stage.past, order: 1)
            s.run()
        }
    }

    @Test func `timers whose dates were past when they were made fire by date`() throws {
        try differ(cf: "E T S W A b a X =finished", ours: "E T S W A a b X =finished", because: "5.7") { s in
            s.observe()
            s.timer("b", in: -1000)
            s.timer("a", in: -2000)
            s.run()
        }
    }

    @Test func `a timer invalidated by an earlier timer does not fire`() throws {
        try both("E T S W A a X =finished") { s in
            s.observe()
            s.dueTimer("a") { _ in s.invalidate("b") }
            s.dueTimer("b")
            s.run()
        }
    }

    @Test func `a timer removed by an earlier timer does not fire, and stays valid`() throws {
        try both("E T S W A a X =finished b-valid:true") { s in
            s.observe()
            s.dueTimer("a") { _ in s.remove("b") }
            s.dueTimer("b")
            s.run()
            s.askIsValid("b")
        }
    }

    @Test func `a timer removed from the running mode by an earlier timer does not fire, even if it is in another mode`() throws {
        try differ(cf: "E T S W A a b X =finished", ours: "E T S W A a X =finished", because: "5.4") { s in
            s.observe()
            s.dueTimer("a") { _ in s.remove("b") }
            s.dueTimer("b", modes: ["default", "m"])
            s.run()
        }
    }

    @Test func `a timer postponed by an earlier timer does not fire`() throws {
        try both("E T S W A a X =stopped") { s in
            s.observe()
            s.dueTimer("a") { _ in
                s.setNextFire("b", in: Stage.never)
                s.stop()
            }
            s.dueTimer("b")
            s.run()
        }
    }

    @Test func `a timer added by a timer fires in the next pass, even if its date is past`() throws {
        try both("E T S W A a T S W A b X =finished") { s in
            s.observe()
            s.dueTimer("a") { _ in s.dueTimer("b") }
            s.run()
        }
    }

    @Test func `a timer added by a source fires in the same pass if it is due`() throws {
        try both("E T S a t X =stopped") { s in
            s.observe()
            s.source("a") { _ in
                s.dueTimer("t") { _ in s.stop() }
                s.work(2)
            }
            s.signal("a")
            s.run()
        }
    }

    @Test func `a timer that comes due while a source performs fires in the same pass`() throws {
        try both("E T S a t X =stopped") { s in
            s.observe()
            s.timer("t", in: 10) { _ in s.stop() }
            s.source("a") { _ in s.work(15) }
            s.signal("a")
            s.run()
        }
    }

    @Test func `a source that signals itself does not starve a timer`() throws {
        try both("t =stopped") { s in
            s.timer("t", in: 5) { _ in s.stop() }
            s.quietSource("a") { s.signal("a") }
            s.signal("a")
            s.run()
        }
    }

    // MARK: Ending in its own callout

    @Test func `a repeating timer invalidated in its own callout does not fire again`() throws {
        try both("E T S W A t t-valid:false X =finished") { s in
            s.observe()
            s.dueTimer("t", interval: 1) { _ in
                s.invalidate("t")
                s.askIsValid("t")
            }
            s.run()
        }
    }

    @Test func `a repeating timer removed in its own callout does not fire again, and stays valid`() throws {
        try both("E T S W A t X =finished t-valid:true t@default:false") { s in
            s.observe()
            s.dueTimer("t", interval: 1) { _ in s.remove("t") }
            s.run()
            s.askIsValid("t")
            s.askContains("t")
        }
    }

    @Test func `invalidation removes the timer from every mode`() throws {
        try both("t@default:false t@m:false t-valid:false") { s in
            s.timer("t", in: Stage.never, modes: ["default", "m"])
            s.invalidate("t")
            s.askContains("t")
            s.askContains("t", in: "m")
            s.askIsValid("t")
        }
    }

    @Test func `a timer that left its last mode can join another loop`() throws {
        try both("t =finished t-valid:false") { s in
            s.dueTimer("t")
            s.remove("t")
            s.onAnotherThread { other in
                other.add("t")
                other.run()
            }
            s.askIsValid("t")
        }
    }

    @Test func `a timer whose loop ended is valid and can join another loop`() throws {
        try both("t-valid:true t@default:true E T S W A t X =finished") { s in
            s.dueTimer("t", modes: [])
            s.onAnotherThread { $0.add("t") }
            s.askIsValid("t")
            s.add("t")
            s.askContains("t")
            s.observe()
            s.run()
        }
    }
}
