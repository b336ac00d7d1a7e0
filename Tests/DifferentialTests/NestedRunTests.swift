// Runs inside callouts of runs: semantics 8. Section 8.8 lists the events that CF loses there.
//
// - A run can start in any callout and in any mode. A nested run has a limit, a result and a stop of its own. The current mode is the
//   nested run's mode, and afterwards the outer run's again.
// - In the outer run's mode every item takes part except the timer that is firing and the observers that are being called.
// - A stop acts on the run that is innermost at that time. Each stop unwinds one level.
// - In ours, a nested run loses neither an outer limit nor an outer wake-up (8.8).

internal import Testing

@Suite struct NestedRunTests {
    // MARK: From every callout

    @Test func `a source can run the loop in another mode`() throws {
        try both("E T S a m:E m:T m:S n m:X m:=handledSource X =timedOut") { s in
            s.observe()
            s.observe("m")
            s.source("n", in: ["m"])
            s.source("a") { _ in s.run("m", returnAfterSource: true) }
            s.signal("n", "a")
            s.run(limit: 0)
        }
    }

    @Test func `a timer can run the loop in another mode`() throws {
        try both("E T S W A t m:E m:T m:S m:W m:A u m:X m:=finished X =finished") { s in
            s.observe()
            s.observe("m")
            s.dueTimer("u", modes: ["m"])
            s.dueTimer("t") { _ in s.run("m") }
            s.run()
        }
    }

    @Test func `a block can run the loop in another mode`() throws {
        try both("E T S b m:E m:T m:S c m:X m:=timedOut X =timedOut") { s in
            s.observe()
            s.observe("m")
            s.block("b") {
                s.block("c", in: "m")
                s.run("m", limit: 0)
            }
            s.run(limit: 0)
        }
    }

    @Test(
        arguments: [
            ("E", "E m:E m:T m:S m:W m:A u m:X m:=finished T S W A t X =finished"),
            ("T", "E T m:E m:T m:S m:W m:A u m:X m:=finished S W A t X =finished"),
            ("S", "E T S m:E m:T m:S m:W m:A u m:X m:=finished W A t X =finished"),
            ("W", "E T S W m:E m:T m:S m:W m:A u m:X m:=finished A t X =finished"),
            ("A", "E T S W A m:E m:T m:S m:W m:A u m:X m:=finished t X =finished"),
            ("X", "E T S W A t X m:E m:T m:S m:W m:A u m:X m:=finished =finished"),
        ])
    func `an observer of any activity can run the loop in another mode`(letter: String, trace: String) throws {
        try both(trace) { s in
            s.observe { if $0 == "\(letter)1" { s.run("m") } }
            s.observe("m")
            s.dueTimer("t")
            s.dueTimer("u", modes: ["m"])
            s.run()
        }
    }

    @Test func `the schedule call of a source can run the loop`() throws {
        try both("b +a@default m:=timedOut =timedOut") { s in
            s.keepAlive("m")
            s.block("b") { s.watchedSource("a", schedule: { _ in s.run("m", limit: 0) }) }
            s.run(limit: 0)
        }
    }

    // MARK: The same mode

    @Test func `in the same mode a nested run serves the other items`() throws {
        try both("E T S W A t E T S b a u X =timedOut X =finished") { s in
            s.observe()
            s.source("a")
            s.dueTimer("t") { _ in
                s.signal("a")
                s.block("b")
                s.dueTimer("u")
                s.work(1)
                s.run(limit: 0)
                s.invalidate("a")
            }
            s.run()
        }
    }

    @Test func `a timer does not fire again in a run nested in its own callout`() throws {
        try both("t E T S X =timedOut t =stopped") { s in
            s.dueTimer("t", interval: 1) { call in
                guard call == 1 else { return s.stop() }
                s.observe()
                s.work(5)
                s.run(limit: 0)
                s.remove("observer-of-default")
            }
            s.run()
        }
    }

    @Test func `a firing one-shot timer keeps its mode from being empty for a nested run`() throws {
        try both("t =timedOut =finished") { s in
            s.dueTimer("t") { _ in s.run(limit: 0) }
            s.run()
        }
    }

    @Test func `timers that are due with the firing timer fire in the nested run, and not again after it`() throws {
        try both("t begin u =timedOut end =finished") { s in
            s.dueTimer("t") { _ in
                s.note("begin")
                s.work(1)
                s.run(limit: 0)
                s.note("end")
            }
            s.dueTimer("u")
            s.run()
        }
    }

    @Test func `a source that is performing can be signaled and performed in a nested run of the same mode`() throws {
        try both("a a =handledSource b =timedOut") { s in
            s.source("a") { call in
                guard call == 1 else { return }
                s.signal("a")
                s.run(returnAfterSource: true)
            }
            s.source("b", order: 1)
            s.signal("a", "b")
            s.run(limit: 0)
        }
    }

    // MARK: Another mode

    @Test func `a run nested in another mode holds the outer mode's items`() throws {
        try both("E T S a m:=timedOut b c t X =timedOut") { s in
            s.observe()
            s.keepAlive("m")
            s.source("a") { _ in
                s.block("c")
                s.run("m", limit: 0)
            }
            s.source("b", order: 1)
            s.dueTimer("t")
            s.signal("a", "b")
            s.run(limit: 0)
        }
    }

    @Test func `the current mode is the nested run's inside and the outer run's afterwards, at any depth`() throws {
        try both("a mode:default b c mode:n n:=timedOut mode:m m:=timedOut mode:default =timedOut mode:none") { s in
            s.keepAlive("n")
            s.source("b", in: ["m"]) { _ in
                s.block("c", in: "n") { s.askCurrentMode() }
                s.run("n", limit: 0)
                s.askCurrentMode()
            }
            s.source("a") { _ in
                s.askCurrentMode()
                s.signal("b")
                s.run("m", limit: 0)
                s.askCurrentMode()
            }
            s.signal("a")
            s.run(limit: 0)
            s.askCurrentMode()
        }
    }

    @Test func `a nested run in an empty mode returns at once, without notifications`() throws {
        try both("E T S a m:=finished mode:default X =timedOut") { s in
            s.observe()
            s.observe("m")
            s.source("a") { _ in
                s.run("m")
                s.askCurrentMode()
            }
            s.signal("a")
            s.run(limit: 0)
        }
    }

    @Test func `a nested run in the common pseudo-mode is refused`() throws {
        try both("E T S a common:=finished X =timedOut") { s in
            s.observe()
            s.source("a") { _ in s.run("common") }
            s.signal("a")
            s.run(limit: 0)
        }
    }

    // MARK: Stops

    @Test func `a stop in a nested run ends only that run`() throws {
        try both("E T S W A t n m:=stopped T S W A u X =finished") { s in
            s.observe()
            s.source("n", in: ["m"]) { _ in s.stop() }
            s.dueTimer("t") { _ in
                s.signal("n")
                s.run("m")
                s.dueTimer("u")
            }
            s.run()
        }
    }

    @Test func `a stop before a nested run does not affect that run and ends the outer one`() throws {
        try both("E T S a n m:=handledSource X =stopped") { s in
            s.observe()
            s.source("n", in: ["m"])
            s.source("a") { _ in
                s.stop()
                s.run("m", returnAfterSource: true)
            }
            s.signal("n", "a")
            s.run()
        }
    }

    @Test func `each stop unwinds one level of runs`() throws {
        try both("E T S a b c n:=stopped m:=stopped X =stopped") { s in
            s.observe()
            s.source("c", in: ["n"]) { _ in s.stop() }
            s.source("b", in: ["m"]) { _ in
                s.signal("c")
                s.run("n")
                s.stop()
            }
            s.source("a") { _ in
                s.signal("b")
                s.run("m")
                s.stop()
            }
            s.signal("a")
            s.run()
        }
    }

    @Test func `several stops in a nested run end one level`() throws {
        try both("E T S W A t n m:=stopped T S W A u X =finished") { s in
            s.observe()
            s.source("n", in: ["m"]) { _ in
                s.stop()
                s.stop()
            }
            s.dueTimer("t") { _ in
                s.signal("n")
                s.run("m")
                s.dueTimer("u")
            }
            s.run()
        }
    }

    @Test func `a stop from another thread ends the innermost run`() throws {
        try both("E T S W A t m:E m:T m:S m:W m:A m:X m:=stopped X =finished") { s in
            s.observe()
            s.observe("m")
            s.keepAlive("m")
            s.dueTimer("t") { _ in
                s.whenWaiting { s.stop() }
                s.run("m")
            }
            s.run()
        }
    }

    // MARK: Limits

    @Test func `an inner run that outlasts the outer limit is not cut short`() throws {
        try both("E T S a u m:=finished X =timedOut") { s in
            s.observe()
            s.source("a") { _ in
                s.timer("u", in: 20, modes: ["m"])
                s.run("m")
            }
            s.signal("a")
            s.run(limit: 5)
        }
    }

    @Test func `an outer limit that passes during a run nested in an observer is not lost`() throws {
        // In CF the limit wakes the nested run, as its second wait shows, and no event is left to wake the outer run.
        try differ(
            cf: "E T S m:E m:T m:S m:W m:A m:T m:S m:W m:A m:X m:=stopped W rescue A X =timedOut",
            ours: "E T S m:E m:T m:S m:W m:A u m:X m:=finished W A X =timedOut", because: "8.8"
        ) { s in
            s.observe { at in
                guard at == "S1" else { return }
                s.timer("u", in: 100, modes: ["m"])
                s.run("m")
            }
            s.observe("m") { if $0 == "W2" { s.stop() } }
            s.keepAlive()
            s.rescue(after: 5_000) { s.run(limit: 5) }
        }
    }

    @Test func `a run nested in an afterWaiting observer does not sleep over the timer that ended the outer run's sleep`() throws {
        // By then CF has read its kernel timer, and sets it again only for another date.
        try differ(
            cf: "E T S W A o:T o:S o:W o:A =timedOut t X =finished",
            ours: "E T S W A o:T o:S o:W o:A t =finished X =finished", because: "8.8"
        ) { s in
            s.observe { at in
                guard at == "A1" else { return }
                s.observer("o", "TSWA", order: 1)
                s.run(limit: 200)
                s.invalidate("o")
            }
            s.dueTimer("t")
            s.run()
        }
    }

    @Test func `a run nested in a beforeWaiting observer does not lose a wake-up for the outer mode`() throws {
        try differ(cf: "E T S W m:=timedOut A X =timedOut", ours: "E T S W m:=timedOut A T S a X =stopped", because: "8.8") { s in
            s.keepAlive("m")
            s.source("a") { _ in s.stop() }
            s.observe { at in
                guard at == "W1" else { return }
                s.signal("a")
                s.wakeUp()
                s.run("m", limit: 0)
            }
            s.run(limit: 200)
        }
    }
}
