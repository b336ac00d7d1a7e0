// Observers: semantics 7.
//
// - An observer is notified of the activities in its mask. Observers are called one at a time, in ascending order and then in the order
//   they were added.
// - A one-shot observer is notified of the first activity that matches; then it is invalid and in no mode.
// - A notification works on a snapshot: an observer added during it waits for the next notification, and an observer invalidated during it
//   is not called. Ours does not call an observer removed during it either (7.3).
// - An observer is not re-entered: nested runs skip it during its call.

internal import Testing

@Suite struct ObserverTests {
    @Test(
        arguments: [
            ("E", "o:E a t =timedOut"), ("T", "o:T a t =timedOut"), ("S", "o:S a t =timedOut"), ("X", "a t o:X =timedOut"),
            ("W", "a t =timedOut"), ("A", "a t =timedOut"), ("ETS", "o:E o:T o:S a t =timedOut"), ("", "a t =timedOut"),
        ])
    func `an observer is notified of the activities in its mask and no others`(mask: String, trace: String) throws {
        try both(trace) { s in
            s.observer("o", mask)
            s.source("a")
            s.dueTimer("t")
            s.signal("a")
            s.run(limit: 0)
        }
    }

    @Test func `an observer of waiting is notified before and after a sleep`() throws {
        try both("o:W o:A t =finished") { s in
            s.observer("o", "WA")
            s.dueTimer("t")
            s.run()
        }
    }

    @Test func `observers are called in ascending order`() throws {
        try both("first:E second:E third:E first:X second:X third:X =timedOut") { s in
            s.keepAlive()
            s.observer("third", "EX", order: 5)
            s.observer("first", "EX", order: -5)
            s.observer("second", "EX", order: 0)
            s.run(limit: 0)
        }
    }

    @Test func `observers with equal orders are called in the order they were added`() throws {
        try both("b:E a:E c:E =timedOut") { s in
            s.keepAlive()
            for name in ["a", "b", "c"] { s.observer(name, "E", in: []) }
            for name in ["b", "a", "c"] { s.add(name) }
            s.run(limit: 0)
        }
    }

    @Test func `an observer removed and added again goes behind the others with its order`() throws {
        try both("b:E a:E =timedOut") { s in
            s.keepAlive()
            s.observer("a", "E")
            s.observer("b", "E")
            s.remove("a")
            s.add("a")
            s.run(limit: 0)
        }
    }

    @Test func `an observer added twice is called once`() throws {
        try both("o:E =timedOut") { s in
            s.keepAlive()
            s.observer("o", "E", in: ["default", "default"])
            s.run(limit: 0)
        }
    }

    @Test func `a removed observer is not notified, and stays valid`() throws {
        try both("=timedOut o-valid:true o@default:false") { s in
            s.keepAlive()
            s.observer("o", "ETSX")
            s.remove("o")
            s.run(limit: 0)
            s.askIsValid("o")
            s.askContains("o")
        }
    }

    @Test func `an invalid observer cannot be added`() throws {
        try both("o@default:false o-valid:false =timedOut") { s in
            s.keepAlive()
            s.observer("o", "E", in: [])
            s.invalidate("o")
            s.add("o")
            s.askContains("o")
            s.askIsValid("o")
            s.run(limit: 0)
        }
    }

    // MARK: One-shots

    @Test func `a one-shot is notified of the first activity that matches, and is then invalid and in no mode`() throws {
        try both("once:T a =timedOut once-valid:false once@default:false once@m:false") { s in
            s.observer("once", "TSX", repeats: false, in: ["default", "m"])
            s.source("a")
            s.signal("a")
            s.run(limit: 0)
            s.askIsValid("once")
            s.askContains("once")
            s.askContains("once", in: "m")
        }
    }

    @Test func `a one-shot waits until its activity occurs`() throws {
        try both("=timedOut once-valid:true once:W t =stopped once-valid:false") { s in
            s.observer("once", "W", repeats: false)
            s.keepAlive()
            s.run(limit: 0)
            s.askIsValid("once")
            s.dueTimer("t") { _ in s.stop() }
            s.run()
            s.askIsValid("once")
        }
    }

    @Test func `a one-shot is valid while it is called`() throws {
        try both("once:E once-valid:true =timedOut once-valid:false") { s in
            s.keepAlive()
            s.observer("once", "E", repeats: false) { _ in s.askIsValid("once") }
            s.run(limit: 0)
            s.askIsValid("once")
        }
    }

    // MARK: The snapshot of a notification

    @Test func `an observer added during a notification is notified from the next one on`() throws {
        try both("o:E o:T new:T new:S o:X new:X =timedOut") { s in
            s.keepAlive()
            s.observer("o", "ETX") { if $0 == "E1" { s.observer("new", "ETSX", order: 1) } }
            s.run(limit: 0)
        }
    }

    @Test func `an observer invalidated during a notification is no longer called`() throws {
        try both("o:E =timedOut") { s in
            s.keepAlive()
            s.observer("o", "E") { _ in s.invalidate("later") }
            s.observer("later", "EX", order: 1)
            s.run(limit: 0)
        }
    }

    @Test func `an observer removed during a notification is no longer called`() throws {
        try differ(cf: "o:E later:E =timedOut", ours: "o:E =timedOut", because: "7.3") { s in
            s.keepAlive()
            s.observer("o", "E") { _ in s.remove("later") }
            s.observer("later", "EX", order: 1)
            s.run(limit: 0)
        }
    }

    @Test func `an observer invalidated in its own call is not called again`() throws {
        try both("o:E o-valid:false =timedOut o@default:false") { s in
            s.keepAlive()
            s.observer("o", "ETSX") { _ in
                s.invalidate("o")
                s.askIsValid("o")
            }
            s.run(limit: 0)
            s.askContains("o")
        }
    }

    @Test func `an observer removed in its own call is not called again, and stays valid`() throws {
        try both("o:E =timedOut o-valid:true") { s in
            s.keepAlive()
            s.observer("o", "ETSX") { _ in s.remove("o") }
            s.run(limit: 0)
            s.askIsValid("o")
        }
    }

    @Test func `an observer that another removes between notifications is no longer called`() throws {
        try both("o:E p:E o:T =timedOut") { s in
            s.keepAlive()
            s.observer("o", "ET", order: 0) { if $0 == "T1" { s.invalidate("p") } }
            s.observer("p", "ETSX", order: 1)
            s.run(limit: 0)
        }
    }

    // MARK: Modes and loops

    @Test func `an observer in two modes is notified of both`() throws {
        try both("o:E o:X =timedOut o:E o:X m:=timedOut") { s in
            s.keepAlive()
            s.keepAlive("m")
            s.observer("o", "EX", in: ["default", "m"])
            s.run(limit: 0)
            s.run("m", limit: 0)
        }
    }

    @Test func `an observer whose loop ended is valid and can join another loop`() throws {
        try both("o-valid:true o:E =timedOut") { s in
            s.keepAlive()
            s.observer("o", "E", in: [])
            s.onAnotherThread { $0.add("o") }
            s.askIsValid("o")
            s.add("o")
            s.run(limit: 0)
        }
    }

    @Test func `observers of the run's mode are notified of entry and exit, even if the mode became empty meanwhile`() throws {
        try both("o:E mode:m t o:X mode:m m:=finished mode:none") { s in
            s.observer("o", "EX", in: ["m"]) { _ in s.askCurrentMode() }
            s.dueTimer("t", modes: ["m"])
            s.run("m")
            s.askCurrentMode()
        }
    }

    @Test func `a run in an empty mode is refused before an observer can add an item`() throws {
        try both("=finished") { s in
            s.observe { _ in s.dueTimer("t") }
            s.run()
        }
    }

    @Test(arguments: ["E", "T", "S", "W"])
    func `an observer can add a timer that fires in the same pass`(letter: String) throws {
        try both("E T S W A t X =finished") { s in
            s.keepAlive()
            s.observe { at in
                guard at == "\(letter)1" else { return }
                s.remove("keeper-of-default")
                s.dueTimer("t")
            }
            s.run()
        }
    }

    // MARK: Re-entrancy

    @Test func `a run nested in an observer's call skips that observer and notifies the others`() throws {
        try both("o:E p:E p:X =timedOut p:E o:X p:X =timedOut") { s in
            s.keepAlive()
            s.observer("o", "EX", order: 0) { if $0 == "E1" { s.run(limit: 0) } }
            s.observer("p", "EX", order: 1)
            s.run(limit: 0)
        }
    }

    @Test func `a run nested in an observer notifies the nested mode's observers only`() throws {
        try both("E m:E m:T m:S m:X m:=timedOut T S X =timedOut") { s in
            s.keepAlive()
            s.keepAlive("m")
            s.observe { if $0 == "E1" { s.run("m", limit: 0) } }
            s.observe("m")
            s.run(limit: 0)
        }
    }

    @Test func `an observer of both modes is not notified of a run nested in its own call`() throws {
        try both("o:E o:T m:=timedOut o:X =timedOut") { s in
            s.keepAlive()
            s.keepAlive("m")
            s.observer("o", "ETX", in: ["default", "m"]) { if $0 == "T1" { s.run("m", limit: 0) } }
            s.run(limit: 0)
        }
    }

    @Test func `a one-shot is not notified of a run nested in its call`() throws {
        try both("once:E =timedOut once-valid:true =timedOut once-valid:false") { s in
            s.keepAlive()
            s.observer("once", "ETSX", repeats: false) { _ in
                s.run(limit: 0)
                s.askIsValid("once")
            }
            s.run(limit: 0)
            s.askIsValid("once")
        }
    }
}
