// Dates of timers: semantics 5.2, 5.3, 5.6, 5.7, 5.9, 5.13 and 5.16.
//
// - A timer's slots lie on a grid. Slots missed during a long callout or while the loop was busy are dropped or replaced by one late fire,
//   and the grid stays. In ours the grid starts at the first date, even if it is past; in CF at the timer's creation (5.7).
// - A date set in the timer's own callout takes effect, except for a one-shot.
// - In ours, the date of a timer that was removed does not wake the loop (5.16).
//
// The dates are past or far apart, or the scenario waits for them before the run, so that load does not change the trace. CF replaces a
// date that is past at creation or setting by the present (5.7), so two such timers fire in the order they were made.

internal import Testing

@Suite struct TimerDateTests {
    // MARK: Repeating

    @Test func `a repeating timer fires once a pass until it is stopped`() throws {
        try both("E T S W A t T S W A t T S W A t X =stopped") { s in
            s.observe()
            s.timer("t", in: 1, interval: 2) { if $0 == 3 { s.stop() } }
            s.run()
        }
    }

    @Test func `a repeating timer stays valid after it fired`() throws {
        try both("t =timedOut t-valid:true t@default:true") { s in
            s.dueTimer("t", interval: Stage.never)
            s.run(limit: 0)
            s.askIsValid("t")
            s.askContains("t")
        }
    }

    @Test func `in its callout a repeating timer still reports the date that is being fired`() throws {
        try both("t shows:true =stopped later:true") { s in
            s.timer("t", in: 5, interval: Stage.never) { _ in
                s.note("shows", s.nextFire("t") <= s.elapsed)
                s.stop()
            }
            s.run()
            s.note("later", s.nextFire("t") > s.elapsed)
        }
    }

    @Test func `slots that pass during a callout are dropped, and the grid stays`() throws {
        try both("E T S W A t X =stopped after-mark:true on-grid:true") { s in
            s.observe()
            s.timer("t", in: 5, interval: 10) { _ in
                s.work(25)
                s.mark()
                s.stop()
            }
            let first = s.nextFire("t")
            s.run()
            s.noteGrid(of: "t", first: first, interval: 10)
        }
    }

    @Test func `slots that passed while the loop did not run cause one late fire, and the grid stays`() throws {
        try both("E T S W A t X =stopped after-mark:true on-grid:true") { s in
            s.observe()
            s.timer("t", in: 5, interval: 10) { _ in s.stop() }
            let first = s.nextFire("t")
            s.work(35)
            s.mark()
            s.run()
            s.noteGrid(of: "t", first: first, interval: 10)
        }
    }

    @Test func `setting the date starts a new grid`() throws {
        try both("E T S W A t X =stopped after-mark:true on-grid:true") { s in
            s.observe()
            s.timer("t", in: Stage.never, interval: 10) { _ in
                s.mark()
                s.stop()
            }
            s.setNextFire("t", in: 13)
            let first = s.nextFire("t")
            s.run()
            s.noteGrid(of: "t", first: first, interval: 10)
        }
    }

    @Test func `the grid of a timer made with a past date starts at that date`() throws {
        try differ(cf: "t =timedOut next:10", ours: "t =timedOut next:6", because: "5.7") { s in
            s.timer("t", in: -4000, interval: 10_000)
            s.run(limit: 0)
            s.note("next", Int((s.nextFire("t") / 1000).rounded()))
        }
    }

    // MARK: Setting the date

    @Test func `a date set before the timer is added is kept`() throws {
        try both("E T S W A t X =finished") { s in
            s.observe()
            s.timer("t", in: Stage.never, modes: [])
            s.setNextFire("t", in: Stage.past)
            s.add("t")
            s.run()
        }
    }

    @Test func `a date set to the past makes the timer due`() throws {
        try both("E T S W A t X =finished") { s in
            s.observe()
            s.timer("t", in: Stage.never)
            s.setNextFire("t", in: Stage.past)
            s.run()
        }
    }

    @Test func `a due timer whose date is postponed is not due`() throws {
        try both("E T S X =timedOut") { s in
            s.observe()
            s.dueTimer("t")
            s.setNextFire("t", in: Stage.never)
            s.work(1)
            s.run(limit: 0)
        }
    }

    @Test func `a date sooner than the next slot, set in the callout, takes effect`() throws {
        try both("E T S W A t T S W A t X =stopped") { s in
            s.observe()
            s.dueTimer("t", interval: Stage.never) { $0 == 1 ? s.setNextFire("t", in: 5) : s.stop() }
            s.run()
        }
    }

    @Test func `a date later than the next slot, set in the callout, takes effect`() throws {
        try both("E T S W A t X =stopped put-off:true") { s in
            s.observe()
            s.timer("t", in: 1, interval: 2) { _ in
                s.setNextFire("t", in: Stage.never)
                s.stop()
            }
            s.run()
            s.note("put-off", s.nextFire("t") > Stage.never)
        }
    }

    @Test func `a past date set in the callout makes the timer fire in the next pass`() throws {
        try both("E T S W A t T S W A t X =stopped") { s in
            s.observe()
            s.dueTimer("t", interval: Stage.never) { $0 == 1 ? s.setNextFire("t", in: Stage.past) : s.stop() }
            s.run()
        }
    }

    @Test func `a past date set in the callout reads back as set, and the grid starts at the present`() throws {
        try both("t =stopped reads:-4 t =timedOut next:10") { s in
            s.dueTimer("t", interval: 10_000) {
                guard $0 == 1 else { return }
                s.setNextFire("t", in: -4000)
                s.stop()
            }
            s.run()
            s.note("reads", Int((s.nextFire("t") / 1000).rounded()))
            s.run(limit: 0)
            s.note("next", Int((s.nextFire("t") / 1000).rounded()))
        }
    }

    @Test func `a past date set outside the callout starts the grid at the present`() throws {
        try both("reads:-4 t =timedOut next:10") { s in
            s.timer("t", in: Stage.never, interval: 10_000)
            s.setNextFire("t", in: -4000)
            s.note("reads", Int((s.nextFire("t") / 1000).rounded()))
            s.run(limit: 0)
            s.note("next", Int((s.nextFire("t") / 1000).rounded()))
        }
    }

    @Test func `a past date set before the timer is added starts the grid at the present`() throws {
        try both("reads:-4 t =timedOut next:10") { s in
            s.timer("t", in: Stage.never, interval: 10_000, modes: [])
            s.setNextFire("t", in: -4000)
            s.add("t")
            s.note("reads", Int((s.nextFire("t") / 1000).rounded()))
            s.run(limit: 0)
            s.note("next", Int((s.nextFire("t") / 1000).rounded()))
        }
    }

    @Test func `setting the date of a one-shot in its callout does not keep it valid`() throws {
        try both("E T S W A t X =finished t-valid:false") { s in
            s.observe()
            s.dueTimer("t") { _ in s.setNextFire("t", in: 5) }
            s.run()
            s.askIsValid("t")
        }
    }

    @Test func `setting the date of an invalid timer has no effect`() throws {
        try both("t-valid:false t@default:false =finished") { s in
            s.timer("t", in: Stage.never)
            s.invalidate("t")
            s.setNextFire("t", in: Stage.past)
            s.askIsValid("t")
            s.askContains("t")
            s.run()
        }
    }

    @Test func `a timer that was removed does not wake the loop at its old date`() throws {
        try differ(cf: "E T S W A T S W A X =timedOut", ours: "E T S W A X =timedOut", because: "5.16") { s in
            s.observe { if $0 == "S1" { s.remove("t") } }
            s.keepAlive()
            s.timer("t", in: 10)
            s.run(limit: 200)
        }
    }

    @Test func `one timer can make another due`() throws {
        try both("E T S W A a T S W A b X =finished") { s in
            s.observe()
            s.timer("b", in: Stage.never)
            s.dueTimer("a") { _ in s.setNextFire("b", in: Stage.past) }
            s.run()
        }
    }

    @Test func `a timer added from another thread reaches a sleeping loop`() throws {
        // No observers here: in ours a change from another thread is a wake-up, so ours makes one more pass than CF.
        try both("t =stopped") { s in
            s.keepAlive()
            s.dueTimer("t", modes: []) { _ in s.stop() }
            s.whenWaiting { s.add("t") }
            s.run()
        }
    }

    @Test func `a date set from another thread reaches a sleeping loop`() throws {
        // No observers here: the timer and a wake-up each wake CF, in either order.
        try both("t =stopped") { s in
            s.timer("t", in: Stage.never) { _ in s.stop() }
            s.whenWaiting { s.setNextFire("t", in: Stage.past) }
            s.run()
        }
    }

    @Test func `the next date of a mode is the date of its earliest timer`() throws {
        try both("none true true none-again m:none") { s in
            s.note(s.nextTimerFire() == nil ? "none" : "some")
            s.timer("t", in: 2 * Stage.never)
            s.note("\(s.nextTimerFire() == s.nextFire("t"))")
            s.timer("u", in: Stage.never)
            s.note("\(s.nextTimerFire() == s.nextFire("u"))")
            s.invalidate("t")
            s.remove("u")
            s.note(s.nextTimerFire() == nil ? "none-again" : "some")
            s.add("u")
            s.note(s.nextTimerFire(in: "m") == nil ? "m:none" : "m:some")
        }
    }
}
