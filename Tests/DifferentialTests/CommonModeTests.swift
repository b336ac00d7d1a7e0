// The common modes: semantics 2.3 to 2.6.
//
// - The common modes are a set of names, at first the default mode alone. The set only grows. Adding a name twice has no effect.
// - An item added to common is recorded and added to every mode of the set, with one schedule call for each mode. A mode that joins later
//   gets every recorded item.
// - Removing an item from common removes it from the record and from every common mode, even if it was added to one by name: membership is
//   not counted. Removing an item that is not in the record has no effect. Removing an item from one mode leaves the record unchanged.
// - For common, `contains` checks the record only.

internal import Testing

@Suite struct CommonModeTests {
    @Test func `the default mode is common from the start`() throws {
        try both("+a@default a@default:true a@common:true") { s in
            s.watchedSource("a", in: ["common"])
            s.askContains("a")
            s.askContains("a", in: "common")
        }
    }

    @Test func `a mode that joins the common modes gets every recorded item, sources with a schedule call`() throws {
        try both("+a@default a@m:false +a@m a@m:true t@m:true o@m:true") { s in
            s.watchedSource("a", in: ["common"])
            s.timer("t", in: Stage.never, modes: ["common"])
            s.observer("o", "E", in: ["common"])
            s.askContains("a", in: "m")
            s.addCommonMode("m")
            for name in ["a", "t", "o"] { s.askContains(name, in: "m") }
        }
    }

    @Test func `a mode that joins twice gets its items scheduled once`() throws {
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

    @Test func `an item added to common twice is scheduled once`() throws {
        try both("+a@default") { s in s.watchedSource("a", in: ["common", "common"]) }
    }

    @Test func `adding an item to common does not schedule it again in a mode that it was added to by name`() throws {
        try both("+a@default +a@m a@common:true") { s in
            s.addCommonMode("m")
            s.watchedSource("a", in: ["default", "common"])
            s.askContains("a", in: "common")
        }
    }

    @Test func `removing from common removes from every common mode, even if the item was added by name`() throws {
        try both("+a@default +a@m -a@default -a@m a@default:false a@m:false a@common:false") { s in
            s.watchedSource("a", in: ["default", "common"])
            s.addCommonMode("m")
            s.sorted { s.remove("a", from: "common") }
            for mode in ["default", "m", "common"] { s.askContains("a", in: mode) }
        }
    }

    @Test func `removing from common does not affect modes that are not common`() throws {
        try both("+a@m +a@default -a@default a@m:true a@default:false") { s in
            s.watchedSource("a", in: ["m", "common"])
            s.remove("a", from: "common")
            s.askContains("a", in: "m")
            s.askContains("a")
        }
    }

    @Test func `removing from common an item that was never added to it has no effect`() throws {
        try both("+a@default a@default:true") { s in
            s.watchedSource("a")
            s.remove("a", from: "common")
            s.askContains("a")
        }
    }

    @Test func `an item removed from one common mode stays in the record, and joins modes that become common later`() throws {
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

    @Test func `for common, contains checks the record only`() throws {
        try both("a@common:false t@common:false o@common:false a@common:true t@common:true o@common:true") { s in
            s.source("a")
            s.timer("t", in: Stage.never)
            s.observer("o", "E")
            for name in ["a", "t", "o"] { s.askContains(name, in: "common") }
            for name in ["a", "t", "o"] { s.add(name, to: "common") }
            for name in ["a", "t", "o"] { s.askContains(name, in: "common") }
        }
    }

    @Test func `invalidating a common item removes it from the record`() throws {
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

    @Test func `a common one-shot timer fires once in total`() throws {
        try both("t m:=finished =finished") { s in
            s.addCommonMode("m")
            s.dueTimer("t", modes: ["common"])
            s.run("m")
            s.run()
        }
    }

    @Test func `a common observer is notified of runs in every common mode and in no other`() throws {
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

    @Test func `a queued common block keeps common modes from being empty, and no other mode`() throws {
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
