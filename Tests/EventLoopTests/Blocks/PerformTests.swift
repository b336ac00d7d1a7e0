// Rules proved here:
// - A perform is always queued, even from the loop's own thread. It wakes the loop, counts as a handled source, and keeps its modes from
//   being empty until it has run. One pass runs all performs that are queued for the mode, in order; performs that they queue run in the
//   next pass.
// - It is for the common modes unless the caller names others. A perform with an empty list of modes never runs.
// - The caller can transfer a value that is not Sendable. A loop that has ended refuses performs.

import EventLoop
import EventLoopTestSupport
import Testing

/// Not Sendable: only its owner may touch it.
private final class Note {
    var text: String
    init(_ text: String) { self.text = text }
}

@Suite(.tags(.threads)) struct `A perform` {
    @Test func `is queued, even on the loop's own thread`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            #expect(loop.perform { trace.add("perform") })
            #expect(trace.take() == "")
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "E T S perform X")
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `runs with all others in one pass, in order`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            for number in 1...20 { loop.perform { trace.add("\(number)") } }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S \((1...20).map(String.init).joined(separator: " ")) T S W A X")
        }
    }

    @Test func `that a perform queues waits for the next pass, and the loop does not sleep before that pass`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.perform {
                trace.add("outer")
                loop.perform { trace.add("inner \(clock.now.nanoseconds)") }
            }
            loop.perform { trace.add("second") }
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "E T S outer second T S inner 0 X")
        }
    }

    @Test(arguments: Callout.allCases)
    func `that a callout queues runs before the loop sleeps:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            try callout.arrange(loop, clock, trace) {
                loop.perform { trace.add("queued \(clock.now.nanoseconds)") }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            let seen = trace.take()
            let rest = "queued 0 T S W A X"
            switch callout {
            case .entry, .beforeTimers, .beforeSources: #expect(seen == "E T S \(rest)")
            case .block: #expect(seen == "E T S block \(rest)")
            // Queued at step 4: it runs in this pass or in the next.
            case .source: #expect(seen == "E T S source T S \(rest)" || seen == "E T S source \(rest)")
            case .perform: #expect(seen == "E T S perform T S \(rest)")
            case .port: #expect(seen == "E T S port T S \(rest)")
            case .beforeWaiting, .afterWaiting: #expect(seen == "E T S W A T S \(rest)")
            case .timer: #expect(seen == "E T S W A timer T S \(rest)")
            }
        }
    }

    @Test func `is a handled source`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.perform { trace.add("perform") }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "perform")
        }
    }

    @Test func `does not keep its pass from serving ports and due timers`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.perform { trace.add("perform") }
            loop.addTimer(at: clock.now) { _ in trace.add("timer") }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "E T S perform timer X")
        }
    }

    // MARK: Modes

    @Test func `is for the common modes unless the caller names others`() throws {
        try inManualTime { loop, _, trace in
            for mode in ["joined", "other"] as [RunLoop.Mode] { loop.addIdleSource(forMode: mode) }
            loop.addCommonMode("joined")
            loop.perform { trace.add("in \(loop.currentMode!)") }
            #expect(loop.run(mode: "other", for: .zero) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "joined", for: .zero) == .timedOut)
            #expect(trace.take() == "in joined")
            #expect(loop.run(for: .zero) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `runs once, in the first run of any of its modes`() throws {
        try inManualTime { loop, _, trace in
            for mode in ["a", "b", "c"] as [RunLoop.Mode] { loop.addIdleSource(forMode: mode) }
            loop.perform(inModes: ["a", "b"]) { trace.add("in \(loop.currentMode!)") }
            for mode in ["c", "b", "a"] as [RunLoop.Mode] { #expect(loop.run(mode: mode, for: .zero) == .timedOut) }
            #expect(trace.take() == "in b")
        }
    }

    @Test(arguments: [[.default, .default], [.default, .common], [.common, "other", .default, .common]] as [[RunLoop.Mode]])
    func `with equal or overlapping modes runs once and leaves nothing behind:`(_ modes: [RunLoop.Mode]) throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.perform(inModes: modes) { trace.add("perform") }
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "E T S perform X")
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(loop.run(mode: "other", for: .seconds(1)) == .finished)
            #expect(trace.take() == "")
        }
    }

    @Test func `that runs the loop lets the nested run perform the rest, once`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.perform {
                trace.add("(")
                #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
                trace.add(")")
            }
            for name in ["1", "2"] { loop.perform { trace.add(name) } }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "( 1 2 )")
        }
    }

    @Test func `that stops the loop does not keep the rest of its pass from running`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.perform { loop.stop() }
            for name in ["1", "2"] { loop.perform { trace.add(name) } }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "E T S 1 2 X")
        }
    }

    @Test func `keeps its place while it waits for another mode`() throws {
        try inManualTime { loop, _, trace in
            for (name, modes) in [("1a", ["a"]), ("2b", ["b"]), ("3ab", ["a", "b"]), ("4b", ["b"]), ("5a", ["a"])]
                as [(String, [RunLoop.Mode])]
            {
                loop.perform(inModes: modes) { trace.add(name) }
            }
            _ = loop.run(mode: "a", for: .zero)
            #expect(trace.take() == "1a 3ab 5a")
            _ = loop.run(mode: "b", for: .zero)
            #expect(trace.take() == "2b 4b")
        }
    }

    @Test func `for the common modes runs in a mode that joined them after the perform was queued`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource(forMode: "late")
            loop.perform { trace.add("perform") }
            #expect(loop.run(mode: "late", for: .zero) == .timedOut)
            #expect(trace.take() == "")
            loop.addCommonMode("late")
            #expect(loop.run(mode: "late", for: .zero) == .timedOut)
            #expect(trace.take() == "perform")
        }
    }

    @Test func `with no modes never runs, and keeps no mode from being empty`() throws {
        try inManualTime { loop, _, trace in
            loop.perform(inModes: []) { trace.add("perform") }
            #expect(loop.run(for: .seconds(1)) == .finished)
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "")
        }
    }

    // MARK: Transferred values

    @Test func `transfers a value that is not Sendable`() throws {
        let trace = Trace()
        let received = Gate()
        let running = RunningLoop()
        let note = Note("hello")
        note.text += " there"
        #expect(
            running.loop.perform(sending: note) { note in
                note.text += ", \(running.loop.isCurrent)"
                trace.add(note.text)
                received.open()
            })
        received.wait()
        try running.end()
        #expect(trace.take() == "hello there, true")
    }

    @Test func `with a value follows modes and queue order like any other`() throws {
        try inManualTime { loop, _, trace in
            loop.perform(inModes: ["a"]) { trace.add("1") }
            loop.perform(inModes: ["a"], sending: Note("2")) { trace.add($0.text) }
            loop.perform(inModes: ["b"], sending: Note("b")) { trace.add($0.text) }
            loop.perform(inModes: ["a"]) { trace.add("3") }
            loop.perform(inModes: [], sending: Note("never")) { trace.add($0.text) }
            #expect(loop.run(mode: "a", for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "1 2 3")
            #expect(loop.run(mode: "b", for: .seconds(1)) == .finished)
            #expect(trace.take() == "b")
            loop.perform(sending: Note("common")) { trace.add($0.text) }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "common")
        }
    }

    // MARK: Across threads

    @Test func `wakes the loop`() throws {
        let performed = Counter()
        let running = RunningLoop()
        for number in 1...200 {
            try waitUntilAsleep(running.loop)
            #expect(running.loop.perform { performed.increment() })
            try waitUntil("perform \(number)") { performed.value == number }
        }
        try running.end()
    }

    @Test func `with a value wakes the loop`() throws {
        let performed = Gate()
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        #expect(running.loop.perform(sending: Note("")) { _ in performed.open() })
        performed.wait()
        try running.end()
    }

    @Test func `runs even if the thread that queued it has ended`() throws {
        let trace = Trace()
        let running = RunningLoop(mode: "busy")
        try plainThread { running.loop.perform(inModes: ["later", "busy"]) { trace.add("performed") } }.join()
        try running.end()
        #expect(trace.take() == "performed")
    }

    @Test func `runs in its producer's order, and none is lost`() throws {
        let trace = Trace()
        let running = RunningLoop()
        let producers = (0..<4).map { producer in
            plainThread { for number in 0..<500 { running.loop.perform { trace.add("\(producer):\(number)") } } }
        }
        for producer in producers { try producer.join() }
        try running.end()
        let list = trace.list
        #expect(list.count == 2_000)
        for producer in 0..<4 {
            #expect(list.filter { $0.hasPrefix("\(producer):") } == (0..<500).map { "\(producer):\($0)" })
        }
    }

    // MARK: The end

    @Test func `is refused by a loop that has ended`() throws {
        let loop = try onFreshThread { $0 }
        #expect(!loop.perform {})
        #expect(!loop.perform(inModes: ["any"]) {})
        #expect(!loop.perform(sending: Note("")) { _ in })
    }

    @Test func `that is queued is released, not performed, when a plain thread ends`() throws {
        let (performed, released) = (Counter(), Counter())
        try onFreshThread { loop in
            let canary = Canary { released.increment() }
            loop.perform {
                canary.touch()
                performed.increment()
            }
            loop.perform(sending: Note("")) { _ in
                canary.touch()
                performed.increment()
            }
        }
        #expect(performed.value == 0)
        #expect(released.value == 1)
    }

    @Test func `is released once it has run`() throws {
        try inManualTime { loop, _, trace in
            do {
                let canary = Canary { trace.add("released") }
                loop.perform {
                    canary.touch()
                    trace.add("performed")
                }
            }
            #expect(loop.run() == .finished)
            #expect(trace.take() == "performed released")
        }
    }
}
