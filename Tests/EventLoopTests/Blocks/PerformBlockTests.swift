// Rules proved here:
// - A block runs once, in the first run of any of its modes. The eligible blocks run in FIFO order; a block that is not eligible keeps its
//   place.
// - Blocks run after step 3, after custom sources if the loop handled one, and at the end of the pass. Each point takes a batch: a block
//   that another block queues waits for the next point. The loop never sleeps while a block for its mode is queued.
// - Queueing a block does not wake the loop. A block is not a handled source. A queued block keeps its modes from being empty.
// - A nested run inside a block runs the blocks that were queued since the batch began, not the rest of the batch.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.threads)) struct `A block` {
    @Test func `runs once, in FIFO order`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            for name in ["a", "b", "c"] { #expect(loop.performBlock { trace.add(name) }) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S a b c W A X")
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    @Test func `runs in the first run of any of its modes`() throws {
        try inManualTime { loop, _, trace in
            for mode in [RunLoop.Mode.default, "a", "b"] { loop.addIdleSource(forMode: mode) }
            loop.performBlock(inModes: ["a", "b"]) { trace.add("block in \(loop.currentMode!)") }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "b", for: .zero) == .timedOut)
            #expect(trace.take() == "block in b")
            #expect(loop.run(mode: "a", for: .zero) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    @Test func `is in the default mode unless the caller names others`() throws {
        try inManualTime { loop, _, trace in
            loop.addCommonMode("joined")
            loop.addIdleSource(forMode: "joined")
            loop.performBlock { trace.add("block") }
            #expect(loop.run(mode: "joined", for: .zero) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "block")
        }
    }

    @Test func `for the common modes runs in a mode that joined them after the block was queued`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource(forMode: "late")
            loop.performBlock(inModes: [.common]) { trace.add("block") }
            #expect(loop.run(mode: "late", for: .zero) == .timedOut)
            #expect(trace.take() == "")
            loop.addCommonMode("late")
            #expect(loop.run(mode: "late", for: .zero) == .timedOut)
            #expect(trace.take() == "block")
        }
    }

    @Test func `keeps its place while it waits for another mode`() throws {
        try inManualTime { loop, _, trace in
            loop.performBlock(inModes: ["a"]) { trace.add("1a") }
            loop.performBlock(inModes: ["b"]) { trace.add("2b") }
            loop.performBlock(inModes: ["a", "b"]) { trace.add("3ab") }
            loop.performBlock(inModes: ["b"]) { trace.add("4b") }
            loop.performBlock(inModes: ["a"]) { trace.add("5a") }
            _ = loop.run(mode: "a", for: .zero)
            #expect(trace.take() == "1a 3ab 5a")
            loop.performBlock(inModes: ["b"]) { trace.add("6b") }
            _ = loop.run(mode: "b", for: .zero)
            #expect(trace.take() == "2b 4b 6b")
        }
    }

    @Test(arguments: [[.default, .default], [.default, .common], [.common, "other", .default, .common]] as [[RunLoop.Mode]])
    func `with equal or overlapping modes runs once and leaves nothing behind:`(_ modes: [RunLoop.Mode]) throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.performBlock(inModes: modes) { trace.add("block") }
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "E T S block X")
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(loop.run(mode: "other", for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `is not a handled source`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.performBlock { trace.add("block") }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "block")
        }
    }

    @Test func `with no modes never runs`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.performBlock(inModes: []) { trace.add("block") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    @Test func `is refused by a loop that has ended`() throws {
        let loop = try onFreshThread { $0 }
        #expect(!loop.performBlock {})
        #expect(!loop.performBlock(inModes: [.common]) {})
    }

    // MARK: Where it runs

    @Test(arguments: Callout.allCases)
    func `queued in a callout runs at the next point of that pass:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            try callout.arrange(loop, clock, trace) {
                loop.performBlock { trace.add("queued \(clock.now.nanoseconds)") }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            let expected =
                switch callout {
                case .entry, .beforeTimers, .beforeSources: "E T S queued 0 W A X"
                case .source: "E T S source queued 0 T S W A X"
                case .perform: "E T S perform queued 0 T S W A X"
                case .port: "E T S port queued 0 T S W A X"
                case .beforeWaiting, .afterWaiting: "E T S W A queued 0 T S W A X"
                case .timer: "E T S W A timer queued 0 T S W A X"
                // The next point is the end of the pass. The loop notifies observers of the wait before that point, but does not sleep.
                case .block: "E T S block W A queued 0 T S W A X"
                }
            #expect(trace.take() == expected)
        }
    }

    @Test func `queued by a block after a custom source runs at the end of that pass`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in
                trace.add("source")
                loop.performBlock {
                    trace.add("block1")
                    loop.performBlock { trace.add("block2") }
                }
            }
            loop.addTimer(at: clock.now) { _ in trace.add("timer") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S source block1 timer block2 T S W A X")
        }
    }

    @Test func `queued by a block at the end of a pass runs at the head of the next`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.addTimer(at: clock.now) { _ in
                trace.add("timer")
                loop.performBlock {
                    trace.add("block1")
                    loop.performBlock { trace.add("block2 \(clock.now.nanoseconds)") }
                }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A timer block1 T S block2 0 W A X")
        }
    }

    @Test func `that requeues itself keeps the loop awake and does not starve other items`() throws {
        try inManualTime { loop, clock, trace in
            let again = Box<(@Sendable () -> Void)?>(nil)
            let rounds = Counter()
            again.value = {
                guard rounds.increment() < 20 else { return loop.stop() }
                loop.performBlock(again.value!)
            }
            loop.performBlock(again.value!)
            loop.addTimer(at: clock.now) { _ in trace.add("timer") }
            try loop.addReadyPipe { _ in trace.add("port") }
            loop.addSource(signaled: true) { _ in trace.add("source") }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(rounds.value == 20)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
            #expect(trace.list.sorted() == ["port", "source", "timer"])
            again.value = nil
        }
    }

    @Test func `can queue another one in an otherwise empty mode; both run, and the run finishes`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.performBlock {
                trace.add("block1")
                loop.performBlock { trace.add("block2") }
            }
            #expect(loop.run(for: .seconds(1_000_000)) == .finished)
            #expect(trace.take() == "E T S block1 W A block2 X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test func `queued for another mode does not keep the loop awake`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.performBlock(inModes: ["other"]) { trace.add("block") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
        }
    }

    @Test func `queued in an exit observer runs in the next run`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.exit) { loop.performBlock { trace.add("block") } }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S block W A X")
        }
    }

    @Test func `that is alone in a nested run's mode runs there`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.atFirst(.beforeTimers) {
                loop.performBlock(inModes: ["nested"]) { trace.add("block") }
                trace.add("\(loop.run(mode: "nested", for: .seconds(1_000_000)))")
            }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "block finished")
        }
    }

    // MARK: Nested runs

    @Test func `that runs the loop hides the rest of its batch, but not blocks that were queued since`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.performBlock {
                trace.add("(")
                loop.performBlock { trace.add("since") }
                #expect(loop.run(for: .zero) == .timedOut)
                trace.add(")")
            }
            loop.performBlock { trace.add("rest") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S ( E T S since X ) rest W A X")
        }
    }

    @Test func `in the rest of a batch does not keep a nested run going`() throws {
        try inManualTime { loop, clock, trace in
            loop.performBlock { trace.add("\(loop.run(for: .seconds(1)))") }
            loop.performBlock { trace.add("rest") }
            #expect(loop.run(for: .seconds(5)) == .finished)
            #expect(trace.take() == "finished rest")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    // MARK: Across threads

    @Test func `does not wake the loop, and runs after another event wakes it`() throws {
        let ran = Counter()
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        #expect(running.loop.performBlock { ran.increment() })
        for _ in 1...2_000 {
            #expect(running.loop.isWaiting)
            breathe()
        }
        #expect(ran.value == 0)
        running.loop.wakeUp()
        try waitUntil("the block") { ran.value == 1 }
        try running.end()
    }

    @Test func `with a wake-up is never lost`() throws {
        let ran = Counter()
        let running = RunningLoop()
        for number in 1...1_000 {
            running.loop.performBlock { ran.increment() }
            running.loop.wakeUp()
            try waitUntil("block \(number)") { ran.value == number }
        }
        try running.end()
    }

    @Test func `runs in its producer's order, whatever the other producers do`() throws {
        let trace = Trace()
        let running = RunningLoop()
        let producers = (0..<4).map { producer in
            plainThread {
                for number in 0..<500 {
                    running.loop.performBlock { trace.add("\(producer):\(number)") }
                    if number % 50 == 0 { running.loop.wakeUp() }
                }
            }
        }
        for producer in producers { try producer.join() }
        try running.end()
        let list = trace.list
        #expect(list.count == 2_000)
        for producer in 0..<4 {
            let own = list.filter { $0.hasPrefix("\(producer):") }
            #expect(own == (0..<500).map { "\(producer):\($0)" })
        }
    }

    // MARK: The end

    @Test func `is released, not run, when the thread ends`() throws {
        let (ran, released) = (Counter(), Counter())
        try onFreshThread { loop in
            let canary = Canary { released.increment() }
            loop.performBlock {
                canary.touch()
                ran.increment()
            }
        }
        #expect(ran.value == 0)
        #expect(released.value == 1)
    }

    @Test func `is released once it has run`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            do {
                let canary = Canary { trace.add("released") }
                loop.performBlock {
                    canary.touch()
                    trace.add("ran")
                }
            }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "ran released")
        }
    }
}
