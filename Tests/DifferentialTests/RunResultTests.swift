// How a run ends: semantics 1.5 and 1.6.
//
// - Only a source ends a run that returns after a source; a timer, a block, a wake-up or a source that a nested run handled does not. The
//   run performs one custom source, and its pass still checks once for due timers and ready ports.
// - handledSource wins over timedOut, and timedOut over finished. In ours a stop wins over both; in CF it wins over finished only (1.6).

internal import Testing

@Suite struct RunResultTests {
    // MARK: Returning after a source

    @Test func `a run that returns after a source does so when a custom source performed`() throws {
        try both("E T S a X =handledSource") { s in
            s.observe()
            s.source("a")
            s.signal("a")
            s.run(returnAfterSource: true)
        }
    }

    @Test func `with limit zero a handled source is still reported`() throws {
        try both("E T S a X =handledSource") { s in
            s.observe()
            s.source("a")
            s.signal("a")
            s.run(limit: 0, returnAfterSource: true)
        }
    }

    @Test func `without returning after a source, a handled source is not reported`() throws {
        try both("E T S a X =timedOut") { s in
            s.observe()
            s.source("a")
            s.signal("a")
            s.run(limit: 0)
        }
    }

    @Test func `a run that returns after a source performs one custom source and leaves the others signaled`() throws {
        try both("E T S a X =handledSource E T S b X =handledSource E T S X =timedOut") { s in
            s.observe()
            s.source("a")
            s.source("b")
            s.signal("a", "b")
            s.run(returnAfterSource: true)
            s.run(returnAfterSource: true)
            s.run(limit: 0, returnAfterSource: true)
        }
    }

    @Test func `without returning after a source, one pass performs all custom sources`() throws {
        try both("E T S a b c X =timedOut") { s in
            s.observe()
            s.source("a")
            s.source("b")
            s.source("c")
            s.signal("a", "b", "c")
            s.run(limit: 0)
        }
    }

    @Test func `a timer does not end a run that returns after a source`() throws {
        try both("E T S W A t T S a X =handledSource") { s in
            s.observe()
            s.source("a")
            s.dueTimer("t") { _ in s.signal("a") }
            s.run(returnAfterSource: true)
        }
    }

    @Test func `a block does not end a run that returns after a source`() throws {
        try both("E T S b X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.block("b")
            s.run(limit: 0, returnAfterSource: true)
        }
    }

    @Test func `a wake-up does not end a run that returns after a source`() throws {
        try both("E T S W A T S W A X =stopped") { s in
            s.observe { at in
                if at == "S1" { s.wakeUp() }
                if at == "W2" { s.stop() }
            }
            s.keepAlive()
            s.run(returnAfterSource: true)
        }
    }

    @Test func `a source handled by a nested run does not end the outer run`() throws {
        try both("E T S W A t a m:=handledSource T S W A X =stopped") { s in
            s.observe { if $0 == "W2" { s.stop() } }
            s.keepAlive()
            s.source("a", in: ["m"])
            s.signal("a")
            s.dueTimer("t") { _ in s.run("m", returnAfterSource: true) }
            s.run(returnAfterSource: true)
        }
    }

    @Test func `after a handled source the pass still checks once for due timers before the run returns`() throws {
        try both("E T S a t X =handledSource") { s in
            s.observe()
            s.source("a")
            s.dueTimer("t")
            s.signal("a")
            s.run(returnAfterSource: true)
        }
    }

    // MARK: Which result wins

    @Test func `the run that a source ends uses up a stop that the source requests`() throws {
        try both("E T S a X =handledSource E T S X =timedOut") { s in
            s.observe()
            s.source("a") { _ in s.stop() }
            s.signal("a")
            s.run(returnAfterSource: true)
            s.run(limit: 0)
        }
    }

    @Test func `a handled source wins over a limit that passed meanwhile`() throws {
        try both("E T S a X =handledSource") { s in
            s.observe()
            s.source("a") { _ in s.work(5) }
            s.signal("a")
            s.run(limit: 1, returnAfterSource: true)
        }
    }

    @Test func `a stop wins over a limit of zero`() throws {
        try differ(cf: "E T S a X =timedOut", ours: "E T S a X =stopped", because: "1.6") { s in
            s.observe()
            s.source("a") { _ in s.stop() }
            s.signal("a")
            s.run(limit: 0)
        }
    }

    @Test func `a stop wins over a limit that passes in the same callout`() throws {
        try differ(cf: "E T S a X =timedOut", ours: "E T S a X =stopped", because: "1.6") { s in
            s.observe()
            s.source("a") { _ in
                s.stop()
                s.work(5)
            }
            s.signal("a")
            s.run(limit: 1)
        }
    }

    @Test func `a stop wins over an emptied mode`() throws {
        try both("E T S W A t X =stopped") { s in
            s.observe()
            s.dueTimer("t") { _ in s.stop() }
            s.run()
        }
    }

    @Test func `a passed limit wins over an emptied mode`() throws {
        try both("E T S a X =timedOut") { s in
            s.observe()
            s.source("a") { _ in
                s.remove("a")
                s.work(5)
            }
            s.signal("a")
            s.run(limit: 1)
        }
    }

    @Test func `a limit that passes in a callout ends the run without another sleep`() throws {
        try both("E T S a b X =timedOut") { s in
            s.observe()
            s.source("a") { _ in s.work(5) }
            s.source("b")
            s.signal("a", "b")
            s.run(limit: 1)
        }
    }

    @Test func `a handled source wins over an emptied mode`() throws {
        try both("E T S a X =handledSource =finished") { s in
            s.observe()
            s.source("a") { _ in s.invalidate("a") }
            s.signal("a")
            s.run(returnAfterSource: true)
            s.run(returnAfterSource: true)
        }
    }
}
