// What a run is: semantics 1.2, 1.4 and 1.11.
//
// - The order of a pass is E T S W A X. W and A come in pairs, and a pass that must not sleep has neither.
// - A mode without sources, timers and queued blocks is empty; observers never count. A run in an empty or unknown mode, or in the common
//   pseudo-mode, returns at once without notifications.
// - With a limit of zero or below, a run makes one pass without a sleep.
// - Ours never sleeps if it has no item left to wait for (1.14).

internal import Testing

@Suite struct RunTests {
    // MARK: One pass

    @Test func `a run without events notifies E T S W A X and times out`() throws {
        try both("E T S W A X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.run(limit: 5)
        }
    }

    @Test func `a run with a limit of zero makes one pass without a sleep`() throws {
        try both("E T S X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.run(limit: 0)
        }
    }

    @Test func `a negative limit is a limit of zero`() throws {
        try both("E T S X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.run(limit: -1000)
        }
    }

    @Test func `an infinite limit never passes`() throws {
        try both("E T S W A t X =stopped") { s in
            s.observe()
            s.timer("t", in: 5) { _ in s.stop() }
            s.run(limit: .infinity)
        }
    }

    @Test func `before timers and before sources are notified in every pass, needed or not`() throws {
        try both("E T S b a T S W A X =stopped") { s in
            s.observe { if $0 == "W1" { s.stop() } }
            s.source("a")
            s.signal("a")
            s.block("b")
            s.run()
        }
    }

    @Test func `one run with every kind of item calls each in its place`() throws {
        try both("E T S b1 a b2 t b3 T S W A u b4 X =stopped") { s in
            s.observe()
            s.source("a") { _ in s.block("b2") }
            s.dueTimer("t") { _ in
                s.block("b3")
                s.dueTimer("u") { _ in
                    s.block("b4")
                    s.stop()
                }
            }
            s.block("b1")
            s.signal("a")
            s.run()
        }
    }

    @Test func `a second run starts with entry again`() throws {
        try both("E T S X =timedOut E T S X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.run(limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `a run without a mode or limit argument ends on a stop`() throws {
        try both("E T S W A t X =returned") { s in
            s.observe()
            s.dueTimer("t") { _ in s.stop() }
            s.keepAlive()
            s.runUnconditionally()
        }
    }

    @Test func `a run without a mode or limit argument ends when no items are left`() throws {
        try both("E T S W A t X =returned") { s in
            s.observe()
            s.dueTimer("t")
            s.runUnconditionally()
        }
    }

    @Test func `a run without a mode or limit argument returns at once in an empty mode`() throws {
        try both("=returned") { s in
            s.observe()
            s.runUnconditionally()
        }
    }

    // MARK: Empty modes

    @Test func `a run in an empty mode returns without notifications`() throws {
        try both("=finished mode:none") { s in
            s.run()
            s.askCurrentMode()
        }
    }

    @Test func `an observer does not keep a mode from being empty`() throws {
        try both("=finished") { s in
            s.observe()
            s.run()
        }
    }

    @Test func `a run in an unknown mode is refused and does not make the mode`() throws {
        try both("m:=finished modes:default") { s in
            s.run("m")
            s.askModes()
        }
    }

    @Test func `the common pseudo-mode cannot be run`() throws {
        try both("common:=finished") { s in
            s.source("a", in: ["common"])
            s.signal("a")
            s.run("common")
        }
    }

    @Test func `a timer that is not due keeps its mode from being empty`() throws {
        try both("E T S X =timedOut") { s in
            s.observe()
            s.timer("t", in: Stage.never)
            s.run(limit: 0)
        }
    }

    @Test func `a queued block keeps its mode from being empty`() throws {
        try both("E T S b X =timedOut =finished") { s in
            s.observe()
            s.block("b")
            s.run(limit: 0)
            s.run()
        }
    }

    @Test func `a block queued for another mode does not keep this one from being empty`() throws {
        try both("=finished") { s in
            s.block("b", in: "m")
            s.run()
        }
    }

    @Test func `a run ends when a timer's callout removed the last item`() throws {
        try both("E T S W A t X =finished") { s in
            s.observe()
            s.keepAlive()
            s.dueTimer("t") { _ in s.remove("keeper-of-default") }
            s.run()
        }
    }

    @Test func `a run ends when a source's perform removed that source`() throws {
        try both("E T S a X =finished") { s in
            s.observe()
            s.source("a") { _ in s.remove("a") }
            s.signal("a")
            s.run()
        }
    }

    @Test func `an item added in the callout that emptied the mode keeps the run going`() throws {
        try both("E T S W A t T S W A u X =finished") { s in
            s.observe()
            s.dueTimer("t") { _ in s.dueTimer("u") }
            s.run()
        }
    }

    @Test func `the loop does not sleep in a mode emptied before the sources`() throws {
        try differ(cf: "E T S W A X =timedOut", ours: "E T S X =finished", because: "1.14") { s in
            s.observe { if $0 == "S1" { s.remove("keeper-of-default") } }
            s.keepAlive()
            s.run(limit: 200)
        }
    }

    @Test func `the loop does not sleep in a mode emptied before waiting`() throws {
        try differ(cf: "E T S W A X =timedOut", ours: "E T S W A X =finished", because: "1.14") { s in
            s.observe { if $0 == "W1" { s.remove("keeper-of-default") } }
            s.keepAlive()
            s.run(limit: 200)
        }
    }

    @Test func `the loop does not sleep in a mode that held only a block`() throws {
        try differ(cf: "E T S b W A X =timedOut", ours: "E T S b X =finished", names: "E T S b W A X =timedOut", because: "6.9") { s in
            s.observe()
            s.block("b")
            s.run(limit: 200)
        }
    }

    // MARK: What a callout can query

    @Test func `the current mode is nil before the run, the run's mode in every callout, and nil afterwards`() throws {
        try both(
            "mode:none m:E mode:m m:T mode:m m:S mode:m b mode:m a mode:m t mode:m m:X mode:m m:=timedOut mode:none"
        ) { s in
            s.askCurrentMode()
            s.observe("m") { _ in s.askCurrentMode() }
            s.source("a", in: ["m"]) { _ in s.askCurrentMode() }
            s.dueTimer("t", modes: ["m"]) { _ in s.askCurrentMode() }
            s.block("b", in: "m") { s.askCurrentMode() }
            s.signal("a")
            s.run("m", limit: 0)
            s.askCurrentMode()
        }
    }

    @Test func `a loop is not waiting in any of its callouts`() throws {
        try both(
            "waiting:false E waiting:false T waiting:false S waiting:false b waiting:false W waiting:false A waiting:false t waiting:false"
                + " X waiting:false =finished waiting:false"
        ) { s in
            s.askIsWaiting()
            s.observe { _ in s.askIsWaiting() }
            s.dueTimer("t") { _ in s.askIsWaiting() }
            s.block("b") { s.askIsWaiting() }
            s.run()
            s.askIsWaiting()
        }
    }

    @Test func `a loop is waiting while its thread sleeps`() throws {
        try both("E T S W waiting:true A X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.whenWaiting {
                s.askIsWaiting()
                s.stop()
            }
            s.run()
        }
    }
}
