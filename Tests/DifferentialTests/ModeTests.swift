// Modes and the common modes: semantics 2.
//
// - Adding an item and queueing a block make a mode. Running a mode, asking for it, removing from it and making it common do not. No mode
//   is ever deleted. Any string is a name.
// - The common modes are a set that only grows. An item added to common is in every mode of the set, also in modes that join later, with
//   one schedule call for each. Membership is not counted when the item is removed.
// - For common, `contains` checks the record, not the modes.
// - An item of another mode is held, and no observer of another mode is notified of a run.
// - A timer or an observer belongs to one loop at a time, a source to any number.

internal import Testing

@Suite struct ModeTests {
    // MARK: When a mode is made

    @Test func `a new loop has exactly the default mode`() throws {
        try both("modes:default") { s in s.askModes() }
    }

    @Test func `adding an item of any kind makes the mode`() throws {
        try both("modes:default,o,s,t") { s in
            s.source("a", in: ["s"])
            s.timer("b", in: Stage.never, modes: ["t"])
            s.observer("c", "E", in: ["o"])
            s.askModes()
        }
    }

    @Test func `queueing a block makes its mode, or all of its modes`() throws {
        try both("modes:default,m,n,o") { s in
            s.block("b", in: "m")
            s.block("c", in: "n", "o")
            s.askModes()
        }
    }

    @Test func `queueing a block for the common modes makes no mode`() throws {
        try differ(cf: "modes:common,default common:=finished", ours: "modes:default common:=finished", because: "2.1") { s in
            s.block("b", in: "common")
            s.askModes()
            s.run("common")
        }
    }

    @Test func `running, asking and removing do not make a mode`() throws {
        try both("m:=finished a@m:false modes:default") { s in
            s.source("a")
            s.run("m")
            s.askContains("a", in: "m")
            s.remove("a", from: "m")
            _ = s.nextTimerFire(in: "m")
            s.askModes()
        }
    }

    @Test func `making a name common does not make a mode while there are no common items`() throws {
        try both("modes:default") { s in
            s.addCommonMode("m")
            s.askModes()
        }
    }

    @Test func `an item added to common makes every common mode`() throws {
        try both("modes:default,m") { s in
            s.addCommonMode("m")
            s.source("a", in: ["common"])
            s.askModes()
        }
    }

    @Test func `a mode whose last item was removed is not deleted`() throws {
        try both("modes:default,m m:=finished") { s in
            s.source("a", in: ["m"])
            s.remove("a", from: "m")
            s.askModes()
            s.run("m")
        }
    }

    @Test func `the empty string is the name of a mode like any other`() throws {
        try both("a :=timedOut mode:none") { s in
            s.source("a", in: [""])
            s.signal("a")
            s.run("", limit: 0)
            s.askCurrentMode()
        }
    }

    @Test func `names compare by value`() throws {
        try both("ab:E ab:T ab:S a ab:X ab:=timedOut") { s in
            s.observe(["a", "b"].joined())
            s.source("a", in: ["ab"])
            s.signal("a")
            s.run("ab", limit: 0)
        }
    }

    // MARK: Items of another mode are held

    @Test func `a source signaled for another mode waits until that mode runs`() throws {
        try both("E T S X =timedOut a m:=timedOut") { s in
            s.observe()
            s.keepAlive()
            s.source("a", in: ["m"])
            s.signal("a")
            s.run(limit: 0)
            s.run("m", limit: 0)
        }
    }

    @Test func `a timer due for another mode fires once, late, when that mode runs`() throws {
        try both("E T S X =timedOut t m:=finished") { s in
            s.observe()
            s.keepAlive()
            s.dueTimer("t", modes: ["m"])
            s.run(limit: 0)
            s.run("m")
        }
    }

    @Test func `a block queued for another mode waits until that mode runs`() throws {
        try both("E T S X =timedOut b m:=timedOut") { s in
            s.observe()
            s.keepAlive()
            s.block("b", in: "m")
            s.run(limit: 0)
            s.run("m", limit: 0)
        }
    }

    @Test func `observers of another mode are not notified`() throws {
        try both("m:E m:T m:S m:X m:=timedOut E T S X =timedOut") { s in
            s.observe()
            s.observe("m")
            s.keepAlive()
            s.keepAlive("m")
            s.run("m", limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `an item in several modes takes part in each`() throws {
        try both("a =timedOut a m:=timedOut n:=finished") { s in
            s.source("a", in: ["default", "m"])
            s.signal("a")
            s.run(limit: 0)
            s.signal("a")
            s.run("m", limit: 0)
            s.run("n", limit: 0)
        }
    }

    @Test func `an item is in only the modes that it was added to`() throws {
        try both(
            "a@m:true a@default:false t@m:true t@default:false o@m:true o@default:false"
                + " a@m:false t@m:false o@m:false a-valid:true t-valid:true o-valid:true"
        ) { s in
            s.source("a", in: ["m"])
            s.timer("t", in: Stage.never, modes: ["m"])
            s.observer("o", "E", in: ["m"])
            for name in ["a", "t", "o"] {
                s.askContains(name, in: "m")
                s.askContains(name)
            }
            for name in ["a", "t", "o"] { s.remove(name, from: "m") }
            for name in ["a", "t", "o"] { s.askContains(name, in: "m") }
            for name in ["a", "t", "o"] { s.askIsValid(name) }
        }
    }

    // MARK: Other loops

    @Test func `a loop refuses another loop's timer until the timer has left that loop`() throws {
        try both("t@default:false t@default:true") { s in
            s.timer("t", in: Stage.never)
            s.onAnotherThread { other in
                other.add("t")
                other.askContains("t")
            }
            s.remove("t")
            s.onAnotherThread { other in
                other.add("t")
                other.askContains("t")
            }
        }
    }

    @Test func `a loop refuses another loop's observer until the observer has left that loop`() throws {
        try both("o@default:false o@default:true") { s in
            s.observer("o", "E")
            s.onAnotherThread { other in
                other.add("o")
                other.askContains("o")
            }
            s.remove("o")
            s.onAnotherThread { other in
                other.add("o")
                other.askContains("o")
            }
        }
    }

    @Test func `a source can be in two loops`() throws {
        try both("+a@default +a@m a@m:true a@default:false -a@m a@default:true a =timedOut") { s in
            s.watchedSource("a")
            s.onAnotherThread { other in
                other.add("a", to: "m")
                other.askContains("a", in: "m")
                other.askContains("a")
                // The end of this thread cancels the source in this loop only.
            }
            s.askContains("a")
            s.signal("a")
            s.run(limit: 0)
        }
    }
}
