// Custom sources in their loops: semantics 3.1, 3.2, 3.10, 3.11 and 3.16.
//
// - schedule and cancel: once for each mode that the source joins or leaves, after the membership changed, on the calling thread.
// - Removal is reversible; invalidation is not.
// - Ours does not perform a source that an earlier source of the pass removed (3.10).

internal import Testing

@Suite struct CustomSourceTests {
    // MARK: schedule and cancel

    @Test func `a source is scheduled once in a mode however often it is added`() throws {
        try both("+a@default") { s in s.watchedSource("a", in: ["default", "default"]) }
    }

    @Test func `a source is cancelled once however often it is removed`() throws {
        try both("+a@default -a@default") { s in
            s.watchedSource("a")
            s.remove("a")
            s.remove("a")
        }
    }

    @Test func `a source is scheduled once in each of its modes`() throws {
        try both("+a@default +a@m +a@n -a@m a@n:true") { s in
            s.watchedSource("a", in: ["default", "m", "n"])
            s.remove("a", from: "m")
            s.askContains("a", in: "n")
        }
    }

    @Test func `inside schedule the source is already in the mode, inside cancel it no longer is`() throws {
        try both("+a@m a@m:true -a@m a@m:false a-valid:true") { s in
            s.watchedSource("a", in: ["m"], schedule: { s.askContains("a", in: $0) }, cancel: { s.askContains("a", in: $0) })
            s.remove("a", from: "m")
            s.askIsValid("a")
        }
    }

    @Test func `a source added again is scheduled again`() throws {
        try both("+a@default -a@default +a@default") { s in
            s.watchedSource("a")
            s.remove("a")
            s.add("a")
        }
    }

    @Test func `schedule and cancel run before a callout's call to add or remove returns`() throws {
        try both("b before +a@default after before -a@default after =timedOut") { s in
            s.watchedSource("a", in: [])
            s.block("b") {
                s.note("before")
                s.add("a")
                s.note("after")
                s.note("before")
                s.remove("a")
                s.note("after")
            }
            s.run(limit: 0)
        }
    }

    @Test func `the end of a thread cancels every source in each mode of its loop`() throws {
        try both("+a@default +a@m +b@default -a@default -a@m -b@default a-valid:true b-valid:true") { s in
            s.watchedSource("a", in: [])
            s.watchedSource("b", in: [])
            s.sorted {
                s.onAnotherThread { other in
                    other.add("a")
                    other.add("a", to: "m")
                    other.add("b")
                }
            }
            s.askIsValid("a")
            s.askIsValid("b")
        }
    }

    @Test func `a source that outlives one loop works in another`() throws {
        try both("+a@default -a@default +a@default a =timedOut") { s in
            s.watchedSource("a", in: [])
            s.onAnotherThread { $0.add("a") }
            s.add("a")
            s.signal("a")
            s.run(limit: 0)
        }
    }

    // MARK: Invalidation

    @Test func `invalidation makes the source invalid first and then cancels it in every mode`() throws {
        try both("+a@default +a@m -a@default -a@m a-valid:false a-valid:false a@default:false a@m:false") { s in
            s.watchedSource("a", in: ["default", "m"], cancel: { _ in s.askIsValid("a") })
            s.sorted { s.invalidate("a") }
            s.askContains("a")
            s.askContains("a", in: "m")
        }
    }

    @Test func `an invalid source ignores a second invalidation, signals and adding`() throws {
        try both("+a@default -a@default a@default:false =finished a-valid:false") { s in
            s.watchedSource("a")
            s.invalidate("a")
            s.invalidate("a")
            s.signal("a")
            s.add("a")
            s.askContains("a")
            s.run()
            s.askIsValid("a")
        }
    }

    @Test func `a source that was in no loop can be invalidated`() throws {
        try both("a-valid:true a-valid:false") { s in
            s.watchedSource("a", in: [])
            s.askIsValid("a")
            s.invalidate("a")
            s.askIsValid("a")
        }
    }

    @Test func `a source invalidated in its own perform is cancelled inside it, and the callout finishes`() throws {
        try both("+a@default E T S a -a@default end X =finished") { s in
            s.observe()
            s.watchedSource("a") { _ in
                s.invalidate("a")
                s.note("end")
            }
            s.signal("a")
            s.run()
        }
    }

    @Test func `a source removed in its own perform stays valid and can come back`() throws {
        try both("+a@default a -a@default a-valid:true =finished +a@default a -a@default a-valid:true =finished") { s in
            s.watchedSource("a") { _ in
                s.remove("a")
                s.askIsValid("a")
            }
            s.signal("a")
            s.run()
            s.add("a")
            s.signal("a")
            s.run()
        }
    }

    @Test func `a source invalidated by an earlier source of the pass does not perform`() throws {
        try both("E T S a X =timedOut") { s in
            s.observe()
            s.source("a") { _ in s.invalidate("b") }
            s.source("b", order: 1)
            s.signal("a", "b")
            s.run(limit: 0)
        }
    }

    @Test func `a source removed by an earlier source of the pass does not perform, and stays signaled`() throws {
        try differ(cf: "E T S a b X =timedOut E T S X =timedOut", ours: "E T S a X =timedOut E T S b X =timedOut", because: "3.10") { s in
            s.observe()
            s.source("a") { _ in s.remove("b") }
            s.source("b", order: 1)
            s.signal("a", "b")
            s.run(limit: 0)
            s.add("b")
            s.run(limit: 0)
        }
    }
}
