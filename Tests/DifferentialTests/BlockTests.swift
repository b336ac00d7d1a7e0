// Queued blocks, CFRunLoopPerformBlock and performBlock: semantics 6.
//
// - A block runs once, in the first run of any of its modes. The blocks of a mode run first in, first out. Held blocks keep their place.
// - A pass runs blocks at three points: after before-sources, after the custom sources if one performed, and at its end. Each point runs
//   the blocks that are queued when it begins. Blocks that they queue wait for the next point.
// - Queueing a block does not wake the loop and is not a handled source, but it keeps the mode from being empty.
// - Ours does not sleep while a block for the mode is queued (6.3).

internal import Testing

@Suite struct BlockTests {
    // MARK: When a block runs

    @Test func `blocks run first in first out, once`() throws {
        try both("E T S b c d X =timedOut =finished") { s in
            s.observe()
            for name in ["b", "c", "d"] { s.block(name) }
            s.run(limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `a block queued before the run runs before the custom sources`() throws {
        try both("E T S b a X =timedOut") { s in
            s.observe()
            s.source("a")
            s.signal("a")
            s.block("b")
            s.run(limit: 0)
        }
    }

    @Test func `a block queued by a source runs right after the sources`() throws {
        try both("E T S a1 a2 b t X =timedOut") { s in
            s.observe()
            s.source("a1") { _ in s.block("b") }
            s.source("a2")
            s.dueTimer("t")
            s.signal("a1", "a2")
            s.run(limit: 0)
        }
    }

    @Test func `a block queued by a timer runs at the end of the pass`() throws {
        try both("E T S W A t u b X =stopped") { s in
            s.observe()
            s.dueTimer("t") { _ in s.block("b") { s.stop() } }
            s.dueTimer("u")
            s.run()
        }
    }

    @Test(arguments: ["E", "T", "S"])
    func `a block queued on entry, before timers or before sources runs before the custom sources`(letter: String) throws {
        try both("E T S b a X =timedOut") { s in
            s.observe { if $0 == "\(letter)1" { s.block("b") } }
            s.source("a")
            s.signal("a")
            s.run(limit: 0)
        }
    }

    @Test func `a block queued after waiting runs at the end of the pass`() throws {
        try both("E T S W A t b X =stopped") { s in
            s.observe { if $0 == "A1" { s.block("b") { s.stop() } } }
            s.dueTimer("t")
            s.run()
        }
    }

    @Test func `a block queued on exit runs in the next run`() throws {
        try both("E T S X =timedOut E T S b X =timedOut") { s in
            s.observe { if $0 == "X1" { s.block("b") } }
            s.keepAlive()
            s.run(limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `a block queued for a mode runs in no other mode`() throws {
        try both("c =timedOut b m:=timedOut =timedOut") { s in
            s.keepAlive()
            s.block("b", in: "m")
            s.block("c")
            s.run(limit: 0)
            s.run("m", limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `a block queued for several modes runs once, in the first of them that runs`() throws {
        try both("=timedOut b n:=timedOut m:=finished") { s in
            s.keepAlive()
            s.block("b", in: "m", "n")
            s.run(limit: 0)
            s.run("n", limit: 0)
            s.run("m", limit: 0)
        }
    }

    @Test func `a block queued for several modes, the common modes among them, runs once`() throws {
        try both("b =timedOut m:=finished =finished") { s in
            s.block("b", in: "m", "common")
            s.run(limit: 0)
            s.run("m", limit: 0)
            s.run(limit: 0)
        }
    }

    @Test func `held blocks keep their place ahead of later ones`() throws {
        try both("c =timedOut b d e m:=timedOut") { s in
            s.block("b", in: "m")
            s.block("c")
            s.block("d", in: "n", "m")
            s.run(limit: 0)
            s.block("e", in: "m")
            s.run("m", limit: 0)
        }
    }

    @Test func `a block queued from another thread keeps its place in that thread's order`() throws {
        try both("b c d =timedOut") { s in
            s.block("b")
            // The helper thread has a loop of its own, so it queues through this thread's stage.
            s.onAnotherThread { _ in
                s.block("c")
                s.block("d")
            }
            s.run(limit: 0)
        }
    }

    // MARK: Batches

    @Test func `a block queued by a block waits for the next point of the pass`() throws {
        try both("E T S b1 a b2 b3 X =timedOut") { s in
            s.observe()
            s.source("a")
            s.signal("a")
            s.block("b1") { s.block("b2") { s.block("b3") } }
            s.run(limit: 0)
        }
    }

    @Test func `with a wake-up, the loop does not sleep over a block queued by a block`() throws {
        try both("E T S b1 W A b2 X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.block("b1") {
                s.block("b2") { s.stop() }
                s.wakeUp()
            }
            s.run()
        }
    }

    @Test func `without a wake-up, the loop does not sleep over a block queued by a block either`() throws {
        try differ(cf: "E T S b1 W A b2 X =timedOut", ours: "E T S b1 W A b2 X =stopped", because: "6.3") { s in
            s.observe()
            s.keepAlive()
            s.block("b1") { s.block("b2") { s.stop() } }
            s.run(limit: 200)
        }
    }

    @Test func `the loop does not sleep over a block queued before waiting`() throws {
        try differ(cf: "E T S W A b X =timedOut", ours: "E T S W A b X =stopped", because: "6.3") { s in
            s.observe { if $0 == "W1" { s.block("b") { s.stop() } } }
            s.keepAlive()
            s.run(limit: 200)
        }
    }

    @Test func `a block queued at the end of a pass runs before the custom sources of the next pass`() throws {
        try both("E T S W A t b1 T S b2 a X =stopped") { s in
            s.observe()
            s.source("a") { _ in s.stop() }
            s.dueTimer("t") { _ in
                s.block("b1") {
                    s.block("b2")
                    s.signal("a")
                }
            }
            s.run()
        }
    }

    // MARK: What a block does not do

    @Test func `queueing a block does not wake the loop`() throws {
        try both("E T S W queued wake A b X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.whenWaiting {
                s.block("b") { s.stop() }
                s.note("queued")
                s.work(5)
                s.note("wake")
                s.wakeUp()
            }
            s.run()
        }
    }

    @Test func `a block queued with a wake-up runs at once, in the pass that was asleep`() throws {
        try both("E T S W A b X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.whenWaiting {
                s.block("b") { s.stop() }
                s.wakeUp()
            }
            s.run()
        }
    }

    @Test func `a block does not make the pass skip its sleep`() throws {
        try both("E T S b W A t X =stopped") { s in
            s.observe()
            s.block("b")
            s.timer("t", in: 10) { _ in s.stop() }
            s.run()
        }
    }

    @Test func `a block does not keep other modes from being empty, nor its own mode after it ran`() throws {
        try both("m:=finished b n:=timedOut n:=finished") { s in
            s.block("b", in: "n")
            s.run("m")
            s.run("n", limit: 0)
            s.run("n", limit: 0)
        }
    }

    // MARK: What a block can do

    @Test func `a block can stop the run, which does not sleep again`() throws {
        try both("E T S b W A X =stopped") { s in
            s.observe()
            s.keepAlive()
            s.block("b") { s.stop() }
            s.run()
        }
    }

    @Test func `a block can signal a source of its pass`() throws {
        try both("E T S b a X =timedOut") { s in
            s.observe()
            s.source("a")
            s.block("b") { s.signal("a") }
            s.run(limit: 0)
        }
    }

    @Test func `a block can add a timer that its pass fires`() throws {
        try both("E T S b W A t X =finished") { s in
            s.observe()
            s.block("b") { s.dueTimer("t") }
            s.run()
        }
    }

    @Test func `a run nested in a block runs the blocks queued since, not the rest of the batch`() throws {
        try both("b1 begin new =timedOut end b2 =timedOut") { s in
            s.keepAlive()
            s.block("b1") {
                s.block("new")
                s.note("begin")
                s.run(limit: 0)
                s.note("end")
            }
            s.block("b2")
            s.run(limit: 0)
        }
    }

    @Test func `a run nested in a block runs all blocks of its own mode, queued before or since`() throws {
        // CF takes the blocks of all modes into the batch. A nested run cannot reach those of its mode, and a mode with nothing else counts
        // as empty. Ours takes only the blocks that the batch performs.
        try differ(
            cf: "b1 m:=timedOut late m:=timedOut b2 =timedOut early m:=timedOut",
            ours: "b1 early m:=timedOut late m:=timedOut b2 =timedOut m:=timedOut", because: "6.6"
        ) { s in
            s.keepAlive()
            s.keepAlive("m")
            s.block("early", in: "m")
            s.block("b1") {
                s.run("m", limit: 0)
                s.block("late", in: "m")
                s.run("m", limit: 0)
            }
            s.block("b2")
            s.run(limit: 0)
            s.run("m", limit: 0)
        }
    }
}
