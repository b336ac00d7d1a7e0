// Signals of custom sources: semantics 3.4 to 3.9 and 3.12 to 3.14.
//
// - A signal is one flag of the source. It does not wake the loop, is cleared before perform, survives removal, and is lost on
//   invalidation.
// - A pass performs a snapshot of the signaled sources: in ascending order, then by the time of the first pending signal. A source signaled
//   during the pass performs in the next pass, without a sleep in between.
// - Ours does not sleep over a signal (3.8, 3.17). An added source (3.18) and the removal of the last source (3.13) wake it.

internal import Testing

@Suite struct SignalTests {
    // MARK: The signal

    @Test func `several signals before a perform cause one perform`() throws {
        try both("E T S a X =timedOut E T S X =timedOut") { s in
            s.observe()
            s.source("a")
            s.signal("a", "a", "a")
            s.run(limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `a source may be signaled before it is in any loop`() throws {
        try both("a =timedOut") { s in
            s.source("a", in: [])
            s.signal("a")
            s.add("a")
            s.run(limit: 0)
        }
    }

    @Test func `a source may signal itself when it is scheduled`() throws {
        try both("+a@default a =timedOut") { s in
            s.watchedSource("a", schedule: { _ in s.signal("a") })
            s.run(limit: 0)
        }
    }

    @Test func `a signal survives removing and adding again`() throws {
        try both("=finished a =timedOut") { s in
            s.source("a")
            s.signal("a")
            s.remove("a")
            s.run(limit: 0)
            s.add("a")
            s.run(limit: 0)
        }
    }

    @Test func `in several modes a source has one signal`() throws {
        try both("a m:=timedOut =timedOut") { s in
            s.source("a", in: ["default", "m"])
            s.signal("a")
            s.run("m", limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `in two loops one signal causes one perform, in the first loop to take it`() throws {
        try both("there a =timedOut here =timedOut") { s in
            s.source("a")
            s.signal("a")
            s.onAnotherThread { other in
                other.note("there")
                other.add("a")
                other.run(limit: 0)
            }
            s.note("here")
            s.run(limit: 0)
        }
    }

    @Test func `a source signaled in its own perform performs in the next pass without a sleep`() throws {
        try both("E T S a T S a T S a X =stopped") { s in
            s.observe()
            s.source("a") { call in call < 3 ? s.signal("a") : s.stop() }
            s.signal("a")
            s.run()
        }
    }

    @Test func `a source signaled by another of the pass performs in the next pass, even if its order is higher`() throws {
        try both("E T S a T S b X =stopped") { s in
            s.observe()
            s.source("a") { _ in s.signal("b") }
            s.source("b", order: 10) { _ in s.stop() }
            s.signal("a")
            s.run()
        }
    }

    @Test func `a source added and signaled during the pass performs in the next pass`() throws {
        try both("E T S a T S b X =stopped") { s in
            s.observe()
            s.source("a") { _ in
                s.source("b") { _ in s.stop() }
                s.signal("b")
            }
            s.signal("a")
            s.run()
        }
    }

    @Test func `a source whose invalidation cleared its signal does not perform`() throws {
        try both("E T S X =timedOut") { s in
            s.observe()
            s.keepAlive()
            s.source("a")
            s.signal("a")
            s.invalidate("a")
            s.run(limit: 0)
        }
    }

    @Test func `a source that signals itself performs again although the next source of the pass was invalidated`() throws {
        try differ(cf: "E T S a W A X =timedOut", ours: "E T S a T S a X =stopped", because: "3.17") { s in
            s.observe()
            s.source("a") { call in
                guard call == 1 else { return s.stop() }
                s.signal("a")
                s.invalidate("b")
            }
            s.source("b", order: 1)
            s.signal("a", "b")
            s.run(limit: 200)
        }
    }

    // MARK: Order

    @Test func `sources of a pass perform in ascending order, whatever the order of adding and signaling`() throws {
        try both("m a b c =timedOut") { s in
            s.source("c", order: 7)
            s.source("a", order: -1)
            s.source("b", order: 0)
            s.source("m", order: .min)
            s.signal("b", "c", "a", "m")
            s.run(limit: 0)
        }
    }

    @Test func `sources with equal orders perform in the order they were signaled`() throws {
        try both("c a b =timedOut") { s in
            for name in ["a", "b", "c"] { s.source(name) }
            s.signal("c", "a", "b")
            s.run(limit: 0)
        }
    }

    @Test func `of several signals, the first pending one determines the order`() throws {
        try both("b a =timedOut") { s in
            for name in ["a", "b"] { s.source(name) }
            s.signal("b", "a", "b")
            s.run(limit: 0)
        }
    }

    @Test func `a source that was signaled before it was added goes behind sources signaled earlier`() throws {
        try both("b a c =timedOut") { s in
            s.source("a", in: [])
            for name in ["b", "c"] { s.source(name) }
            s.signal("b", "a", "c")
            s.add("a")
            s.run(limit: 0)
        }
    }

    @Test func `a source that was removed and added again keeps the time of its signal`() throws {
        try both("b a c =timedOut") { s in
            for name in ["a", "b", "c"] { s.source(name) }
            s.signal("b", "a")
            s.remove("a")
            s.signal("c")
            s.add("a")
            s.run(limit: 0)
        }
    }

    @Test func `in several modes and loops the first signal determines the order, regardless of the mode or loop`() throws {
        try both("b a =timedOut") { s in
            s.source("a", in: ["m"])
            s.source("b")
            s.signal("b", "a")
            s.add("a")
            s.run(limit: 0)
        }
    }

    @Test func `a source signaled again in its perform goes behind sources signaled earlier`() throws {
        try both("a b a =stopped") { s in
            s.source("a") { call in call == 1 ? s.signal("a") : s.stop() }
            s.source("b")
            s.signal("a", "b")
            s.run()
        }
    }

    // MARK: Signaled by observers

    @Test(arguments: ["E", "T", "S"])
    func `a source signaled on entry, before timers or before sources performs in the same pass`(letter: String) throws {
        try both("E T S a X =stopped") { s in
            s.observe { if $0 == "\(letter)1" { s.signal("a") } }
            s.source("a") { _ in s.stop() }
            s.run()
        }
    }

    @Test func `a source signaled after waiting performs in the next pass`() throws {
        try both("E T S W A T S a X =stopped") { s in
            s.observe { at in
                if at == "S1" { s.wakeUp() }
                if at == "A1" { s.signal("a") }
            }
            s.source("a") { _ in s.stop() }
            s.run()
        }
    }

    @Test func `with a wake-up, the loop does not sleep over a source signaled before waiting`() throws {
        try both("E T S W A T S a X =stopped") { s in
            s.observe { at in
                guard at == "W1" else { return }
                s.signal("a")
                s.wakeUp()
            }
            s.source("a") { _ in s.stop() }
            s.run()
        }
    }

    @Test func `without a wake-up, the loop does not sleep over a source signaled before waiting either`() throws {
        try differ(cf: "E T S W A X =timedOut", ours: "E T S W A T S a X =stopped", because: "3.8") { s in
            s.observe { if $0 == "W1" { s.signal("a") } }
            s.source("a") { _ in s.stop() }
            s.run(limit: 200)
        }
    }

    @Test func `a source signaled on exit performs in the next run`() throws {
        try both("E T S X =timedOut E T S a X =timedOut") { s in
            s.observe { if $0 == "X1" { s.signal("a") } }
            s.source("a")
            s.run(limit: 0)
            s.run(limit: 0)
        }
    }

    // MARK: From other threads

    @Test func `a signal alone does not wake the loop`() throws {
        try both("E T S W signaled wake A T S a X =stopped") { s in
            s.observe()
            s.source("a") { _ in s.stop() }
            s.whenWaiting {
                s.signal("a")
                s.note("signaled")
                s.work(5)
                s.note("wake")
                s.wakeUp()
            }
            s.run()
        }
    }

    @Test func `a signal and a wake-up from another thread make the source perform`() throws {
        try both("E T S W A T S a X =stopped") { s in
            s.observe()
            s.source("a") { _ in s.stop() }
            s.whenWaiting {
                s.signal("a")
                s.wakeUp()
            }
            s.run()
        }
    }

    @Test func `adding a signaled source wakes the loop`() throws {
        try differ(cf: "E T S W A X =timedOut", ours: "E T S W A T S a X =stopped", because: "3.18") { s in
            s.observe()
            s.keepAlive()
            s.source("a", in: []) { _ in s.stop() }
            s.signal("a")
            s.whenWaiting { s.add("a") }
            s.run(limit: 300)
        }
    }

    @Test func `removing the last source, with a wake-up, ends the run`() throws {
        try both("E T S W A X =finished") { s in
            s.observe()
            s.source("a")
            s.whenWaiting {
                s.remove("a")
                s.wakeUp()
            }
            s.run()
        }
    }

    @Test func `removing the last source ends the run without a wake-up too`() throws {
        try differ(cf: "E T S W A X =timedOut", ours: "E T S W A X =finished", because: "3.13") { s in
            s.observe()
            s.source("a")
            s.whenWaiting { s.remove("a") }
            s.run(limit: 300)
        }
    }

    @Test func `a source invalidated from another thread is cancelled on that thread, before the call returns`() throws {
        try both("+a@default -a@default back a-valid:false") { s in
            s.watchedSource("a")
            s.onAnotherThread { other in
                other.invalidate("a")
                other.note("back")
            }
            s.askIsValid("a")
        }
    }

    // MARK: Re-entrancy

    @Test func `a source signaled in its own perform performs again inside a nested run`() throws {
        try both("a begin a =handledSource end =timedOut") { s in
            s.source("a") { call in
                guard call == 1 else { return }
                s.signal("a")
                s.note("begin")
                s.run(returnAfterSource: true)
                s.note("end")
            }
            s.signal("a")
            s.run(limit: 0)
        }
    }
}
