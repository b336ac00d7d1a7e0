// The common modes: semantics 2.3 to 2.6.
//
// - A set of names, at first the default mode alone; it only grows, and adding a name twice is nothing.
// - An item added to common is recorded and added to every mode of the set, one schedule call for each; a mode that joins
//   later gets every recorded item.
// - Removing from common takes the item out of the record and out of every common mode, also where it was added by
//   name: membership is not counted. Removing what is not in the record is nothing. Removing from one mode leaves the record.
// - Asked for common, `contains` looks into the record only.

internal import Testing

@Suite struct CommonModeTests {
    @Test func `the default mode is common from the start`() throws {
        try both("+a@default a@default:true a@common:true") { s in
            s.watchedSource("a", in: ["common"])
            s.askContains("a")
            s.askContains("a", in: "common")
        }
    }

    @Test func `a mode that joins gets every recorded item, sources with a schedule call`() throws {
        try both("+a@default a@m:false +a@m a@m:true t@m:true o@m:true") { s in
            s.watchedSource("a", in: ["common"])
            s.timer("t", in: Stage.never, modes: ["common"])
            s.observer("o", "E", in: ["common"])
            s.askContains("a", in: "m")
            s.addCommonMode("m")
            for name in ["a", "t", "o"] { s.askContains(name, in: "m") }
        }
    }

    @Test func `joining twice schedules once`() throws {
        try both("+a@default +a@m") { s in
            s.watchedSource("a", in: ["common"])
            s.addCommonMode("m")
            s.addCommonMode("m")
        }
    }

    @Test func `an item added to common is scheduled once in each common mode`() throws {
        try both("+a@default +a@m +a@n") { s in
            s.addCommonMode("m")
            s.addCommonMode("n")
            s.sorted { s.watchedSource("a", in: ["common"]) }
        }
    }

    @Test func `adding to common twice schedules once`() throws {
        try both("+a@default") { s in s.watchedSource("a", in: ["common", "common"]) }
    }

    @Test func `where an item was added by name, adding it to common does not schedule it again`() throws {
        try both("+a@default +a@m a@common:true") { s in
            s.addCommonMode("m")
            s.watchedSource("a", in: ["default", "common"])
            s.askContains("a", in: "common")
        }
    }

    @Test func `removing from common removes from every common mode, also where it was added by name`() throws {
        try both("+a@default +a@m -a@default -a@m a@default:false a@m:false a@common:false") { s in
            s.watchedSource("a", in: ["default", "common"])
            s.addCommonMode("m")
            s.sorted { s.remove("a", from: "common") }
            for mode in ["default", "m", "common"] { s.askContains("a", in: mode) }
        }
    }

    @Test func `removing from common leaves modes that are not common alone`() throws {
        try both("+a@m +a@default -a@default a@m:true a@default:false") { s in
            s.watchedSource("a", in: ["m", "common"])
            s.remove("a", from: "common")
            s.askContains("a", in: "m")
            s.askContains("a")
        }
    }

    @Test func `removing from common what was never added to it is nothing`() throws {
        try both("+a@default a@default:true") { s in
            s.watchedSource("a")
            s.remove("a", from: "common")
            s.askContains("a")
        }
    }

    @Test func `an item removed from one common mode stays in the record, and in modes that join later`() throws {
        try both("+a@default -a@default a@default:false a@common:true +a@m a@m:true a@default:false") { s in
            s.watchedSource("a", in: ["common"])
            s.remove("a")
            s.askContains("a")
            s.askContains("a", in: "common")
            s.addCommonMode("m")
            s.askContains("a", in: "m")
            s.askContains("a")
        }
    }

    @Test func `asked for common, contains looks into the record only`() throws {
        try both("a@common:false t@common:false o@common:false a@common:true t@common:true o@common:true") { s in
            s.source("a")
            s.timer("t", in: Stage.never)
            s.observer("o", "E")
            for name in ["a", "t", "o"] { s.askContains(name, in: "common") }
            for name in ["a", "t", "o"] { s.add(name, to: "common") }
            for name in ["a", "t", "o"] { s.askContains(name, in: "common") }
        }
    }

    @Test func `invalidating a common item takes it out of the record`() throws {
        try both("+a@default +a@m -a@default -a@m a@common:false t@common:false o@common:false t@m:false") { s in
            s.addCommonMode("m")
            s.sorted { s.watchedSource("a", in: ["common"]) }
            s.timer("t", in: Stage.never, modes: ["common"])
            s.observer("o", "E", in: ["common"])
            s.sorted { s.invalidate("a") }
            s.invalidate("t")
            s.invalidate("o")
            for name in ["a", "t", "o"] { s.askContains(name, in: "common") }
            s.askContains("t", in: "m")
        }
    }

    @Test func `a common source performs in whichever common mode runs`() throws {
        try both("a m:=timedOut a =timedOut") { s in
            s.addCommonMode("m")
            s.source("a", in: ["common"])
            s.signal("a")
            s.run("m", limit: 0)
            s.signal("a")
            s.run(limit: 0)
        }
    }

    @Test func `a common one-shot timer fires once in all`() throws {
        try both("t m:=finished =finished") { s in
            s.addCommonMode("m")
            s.dueTimer("t", modes: ["common"])
            s.run("m")
            s.run()
        }
    }

    @Test func `a common observer hears of runs in every common mode and in no other`() throws {
        try both("o:E o:X =timedOut o:E o:X m:=timedOut n:=timedOut") { s in
            s.addCommonMode("m")
            s.observer("o", "EX", in: ["common"])
            for mode in ["default", "m", "n"] { s.keepAlive(mode) }
            for mode in ["default", "m", "n"] { s.run(mode, limit: 0) }
        }
    }

    @Test func `a common block runs once, in the first common mode that runs`() throws {
        try both("n:=timedOut b m:=timedOut =timedOut") { s in
            s.addCommonMode("m")
            for mode in ["default", "m", "n"] { s.keepAlive(mode) }
            s.block("b", in: "common")
            for mode in ["n", "m", "default"] { s.run(mode, limit: 0) }
        }
    }

    @Test func `a common block also runs in a mode that became common after it was queued`() throws {
        try both("m:=timedOut b m:=timedOut") { s in
            s.keepAlive("m")
            s.block("b", in: "common")
            s.run("m", limit: 0)
            s.addCommonMode("m")
            s.run("m", limit: 0)
        }
    }

    @Test func `a queued common block keeps a common mode from being empty, and no other`() throws {
        try both("n:=finished b m:=timedOut") { s in
            s.addCommonMode("m")
            s.source("a", in: ["m", "n"])
            s.remove("a", from: "m")
            s.remove("a", from: "n")
            s.block("b", in: "common")
            s.run("n", limit: 0)
            s.run("m", limit: 0)
        }
    }

    @Test func `a mode made common in a callout gets the items at once`() throws {
        try both("+a@default b +a@m a m:=timedOut =timedOut") { s in
            s.watchedSource("a", in: ["common"])
            s.block("b") {
                s.addCommonMode("m")
                s.signal("a")
                s.run("m", limit: 0)
            }
            s.run(limit: 0)
        }
    }
}
