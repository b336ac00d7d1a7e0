// Recordings (semantics 21): what is in them, in which order, and what is lost when the ring is full.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite(.tags(.threads)) struct RecordingTests {
    private typealias Kind = RunLoop.Recording.Kind

    /// The kinds of a recording's events, by start.
    private func kinds(_ recording: RunLoop.Recording?) -> [Kind] { recording?.events.map(\.kind) ?? [] }

    @Test func `a kind is stored as the byte that counts the cases`() {
        #expect(Kind.allCases.map(\.code) == Array(0..<UInt8(Kind.allCases.count)))
        #expect(Kind.allCases.allSatisfy { Kind(code: $0.code) == $0 })
        #expect(MemoryLayout<Kind>.size == 1)
    }

    @Test func `without startRecording there is no recording`() throws {
        try inManualTime { loop, _, _ in
            #expect(!loop.isRecording)
            #expect(loop.stopRecording() == nil)
            loop.startRecording()
            #expect(loop.isRecording)
            #expect(loop.stopRecording() != nil)
            #expect(!loop.isRecording)
            #expect(loop.stopRecording() == nil)
        }
    }

    @Test func `a pass with one callout of each kind is recorded, each with its label, place and mode`() throws {
        try inManualTime { loop, clock, trace in
            let pipe = Pipe()
            pipe.write()
            loop.startRecording()
            let line: UInt = #line + 1
            loop.add(RunLoop.Timer(fireAt: clock.now, label: "timer") { _ in trace.add("t") })
            loop.add(RunLoop.Observer(activities: .beforeTimers, label: "observer") { _, _ in trace.add("o") })
            let custom = RunLoop.CustomSource(label: "custom") { trace.add("c") }
            loop.add(custom)
            custom.signal()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, label: "pipe") { source, _ in source.invalidate() })
            loop.perform { trace.add("p") }
            loop.performBlock { trace.add("b") }
            loop.perform(after: .zero) { trace.add("d") }
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            let recording = try #require(loop.stopRecording())
            let callouts = recording.events.filter(\.kind.isCallout)
            func one(_ kind: Kind) throws -> RunLoop.Recording.Event { try #require(callouts.first { $0.kind == kind }) }
            #expect(try one(.timer).label == "timer")
            #expect(try one(.timer).createdAt == "EventLoopTests/RecordingTests.swift:\(line)")
            #expect(try one(.observer).label == "observer")
            #expect(try one(.observer).createdAt == "EventLoopTests/RecordingTests.swift:\(line + 1)")
            #expect(try one(.customSource).label == "custom")
            #expect(try one(.descriptorSource).label == "pipe")
            #expect(try one(.block).createdAt == "EventLoopTests/RecordingTests.swift:\(line + 8)")
            #expect(callouts.filter { $0.kind == .perform }.map(\.createdAt).contains("EventLoopTests/RecordingTests.swift:\(line + 7)"))
            #expect(callouts.filter { $0.kind == .perform }.map(\.createdAt).contains("EventLoopTests/RecordingTests.swift:\(line + 9)"))
            #expect(recording.events.allSatisfy { $0.mode == .default && $0.depth == 1 })
            #expect(recording.overwritten == 0)
            withExtendedLifetime(pipe) {}
        }
    }

    @Test func `spans enclose what happens in them, in the order run, pass, callout`() throws {
        try inManualTime { loop, _, _ in
            loop.startRecording()
            loop.performBlock {}
            _ = loop.run(for: .zero)
            let recording = try #require(loop.stopRecording())
            #expect(kinds(recording) == [.run, .pass, .block])
            for (outer, inner) in zip(recording.events, recording.events.dropFirst()) {
                #expect(outer.start <= inner.start)
                #expect(outer.start + outer.duration >= inner.start + inner.duration)
            }
        }
    }

    @Test func `entry and exit observers belong to the run, not to a pass`() throws {
        try inManualTime { loop, _, _ in
            loop.startRecording()
            loop.add(RunLoop.Observer(activities: [.entry, .exit]) { _, _ in })
            loop.performBlock {}
            _ = loop.run(for: .zero)
            #expect(kinds(loop.stopRecording()) == [.run, .observer, .pass, .block, .observer])
        }
    }

    @Test func `a nested run is recorded inside its callout, one deeper and in its mode`() throws {
        try inManualTime { loop, _, _ in
            loop.startRecording()
            loop.performBlock {
                loop.performBlock(inModes: ["inner"]) {}
                _ = loop.run(mode: "inner", for: .zero)
            }
            _ = loop.run(for: .zero)
            let recording = try #require(loop.stopRecording())
            #expect(kinds(recording) == [.run, .pass, .block, .run, .pass, .block])
            #expect(recording.events.map(\.depth) == [1, 1, 1, 2, 2, 2])
            #expect(recording.events.map(\.mode) == [.default, .default, .default, "inner", "inner", "inner"])
        }
    }

    @Test func `a sleep is recorded, and the wake-up that ends it`() throws {
        let thread = RunningLoop()
        thread.loop.startRecording()
        try thread.loop.performAndWait {}
        try waitUntilAsleep(thread.loop)
        try thread.loop.performAndWait {}
        try waitUntilAsleep(thread.loop)
        let recording = try #require(thread.loop.stopRecording())
        let events = recording.events.filter { $0.kind == .sleep || $0.kind == .wakeUp }.map(\.kind)
        #expect(events.suffix(3) == [.sleep, .wakeUp, .sleep])
        // The last sleep goes on.
        #expect(recording.events.last?.kind == .sleep)
        try thread.end()
    }

    @Test func `a callout in progress is in the recording, and has its enclosing spans`() throws {
        try inManualTime { loop, _, _ in
            loop.startRecording()
            let taken = Box<RunLoop.Recording?>(nil)
            loop.performBlock { taken.value = loop.stopRecording() }
            _ = loop.run(for: .zero)
            #expect(kinds(taken.value) == [.run, .pass, .block])
        }
    }

    @Test func `a recording that begins in a callout has the pass after it, and the runs in progress`() throws {
        try inManualTime { loop, _, _ in
            let taken = Box<RunLoop.Recording?>(nil)
            loop.performBlock {
                loop.startRecording()
                loop.performBlock {}
                _ = loop.run(for: .zero)
                taken.value = loop.stopRecording()
            }
            _ = loop.run(for: .zero)
            #expect(kinds(taken.value) == [.run, .run, .pass, .block])
            #expect(taken.value?.events.map(\.depth) == [1, 2, 2, 2])
        }
    }

    @Test func `no event begins before its recording, though somebody observed the loop before`() throws {
        try inManualTime { loop, _, _ in
            loop.beginObservingCallouts()
            let taken = Box<RunLoop.Recording?>(nil)
            let begin = Box(RunLoop.Instant.distantPast)
            loop.performBlock {
                begin.value = .now
                loop.startRecording()
            }
            loop.performBlock {}
            loop.add(RunLoop.Observer(activities: .exit) { _, _ in taken.value = loop.stopRecording() })
            _ = loop.run(for: .zero)
            let recording = try #require(taken.value)
            #expect(recording.events.contains { $0.kind == .run })
            #expect(recording.events.allSatisfy { $0.start >= begin.value })
        }
    }

    @Test func `a timer that another thread adds right after startRecording is in the recording`() throws {
        for _ in 0..<50 {
            let thread = RunningLoop()
            try waitUntilAsleep(thread.loop)
            thread.loop.startRecording()
            let gate = Gate()
            thread.loop.add(RunLoop.Timer(fireAt: .now, label: "right after") { _ in gate.open() })
            gate.wait()
            try thread.loop.performAndWait {}
            let recording = try #require(thread.loop.stopRecording())
            #expect(recording.events.contains { $0.label == "right after" })
            try thread.end()
        }
    }

    @Test func `a sleep is inside its pass, whenever another thread takes the recording`() throws {
        let thread = RunningLoop()
        let timer = RunLoop.Timer(every: .microseconds(200)) { _ in }
        thread.loop.add(timer)
        for _ in 0..<300 {
            thread.loop.startRecording(capacity: 100)
            try thread.loop.performAndWait {}
            let recording = try #require(thread.loop.stopRecording())
            var pass: RunLoop.Recording.Event?
            for event in recording.events {
                if event.kind == .pass { pass = event }
                guard event.kind == .sleep, let pass else { continue }
                #expect(event.start + event.duration <= pass.start + pass.duration)
            }
        }
        timer.invalidate()
        try thread.end()
    }

    @Test func `a delayed perform is a perform without a label`() throws {
        try inManualTime { loop, _, _ in
            loop.startRecording()
            loop.perform(after: .zero) {}
            _ = loop.run(for: .zero)
            let performs = loop.stopRecording()?.events.filter { $0.kind == .perform }
            #expect(performs?.count == 1 && performs?.first?.label == nil)
        }
    }

    @Test func `a ring of n events keeps the newest n, and counts the others`() throws {
        try inManualTime { loop, _, _ in
            loop.startRecording(capacity: 3)
            for index in 0..<5 { loop.add(RunLoop.Observer(activities: .beforeSources, label: "\(index)") { _, _ in }) }
            loop.performBlock {}
            _ = loop.run(for: .zero)
            let recording = try #require(loop.stopRecording())
            // In the order of their ends: five observers, the block, the pass, the run.
            #expect(kinds(recording) == [.run, .pass, .block])
            #expect(recording.overwritten == 5)
        }
    }

    @Test func `beginning anew drops what was recorded`() throws {
        try inManualTime { loop, _, _ in
            loop.startRecording()
            loop.performBlock {}
            _ = loop.run(for: .zero)
            loop.startRecording()
            #expect(loop.stopRecording()?.events.isEmpty == true)
        }
    }

    @Test func `labels are recorded as text, cut at 120 bytes between characters`() throws {
        try inManualTime { loop, _, _ in
            let hostile = ["", "</script>\u{0}\u{2028}\"\\", String(repeating: "é", count: 100), String(repeating: "x", count: 120)]
            loop.startRecording()
            for label in hostile { loop.add(RunLoop.Observer(activities: .beforeSources, label: label) { _, _ in }) }
            loop.performBlock {}
            _ = loop.run(for: .zero)
            let labels = loop.stopRecording()?.events.filter { $0.kind == .observer }.map(\.label)
            #expect(labels == ["", hostile[1], String(repeating: "é", count: 58) + "…", hostile[3]])
        }
    }

    @Test func `ten thousand different labels keep the newest texts and lose none to another`() throws {
        try inManualTime { loop, clock, _ in
            loop.startRecording(capacity: 1000)
            for index in 0..<10_000 {
                loop.add(RunLoop.Timer(fireAt: clock.now, label: "connection \(index)") { _ in })
            }
            _ = loop.run(for: .zero)
            let recording = try #require(loop.stopRecording())
            let numbers = recording.events.filter { $0.kind == .timer }.compactMap { event -> Int? in
                event.label.flatMap { Int($0.dropFirst("connection ".count)) }
            }
            #expect(numbers.last == 9999)
            #expect(numbers == Array((10_000 - numbers.count)..<10_000))
            #expect(numbers.count > 500)
        }
    }

    @Test func `a call that finds nobody to call is no event`() throws {
        try inManualTime { loop, _, _ in
            let source = RunLoop.CustomSource { Issue.record("its signal was withdrawn") }
            loop.startRecording()
            loop.add(source)
            loop.performBlock {}
            source.signal()
            source.invalidate()
            _ = loop.run(for: .zero)
            #expect(kinds(loop.stopRecording()) == [.run, .pass, .block])
        }
    }

    @Test func `onInvalidation that the loop calls is recorded, with the source's label`() throws {
        let thread = RunningLoop()
        let source = RunLoop.CustomSource(label: "closing") {}
        source.onInvalidation { () -> Void in }
        thread.loop.add(source)
        thread.loop.startRecording()
        try thread.loop.performAndWait {}
        source.invalidate()
        try thread.loop.performAndWait {}
        let recording = try #require(thread.loop.stopRecording())
        #expect(recording.events.filter { $0.kind == .invalidation }.map(\.label) == ["closing"])
        try thread.end()
    }

    @Test func `posts between recorded loops have the key of the callout that delivers them`() throws {
        let (one, other) = (RunningLoop(), RunningLoop())
        one.loop.startRecording()
        other.loop.startRecording()
        let gate = Gate()
        // Both have noticed: a post is recorded while its sender is.
        try one.loop.performAndWait {}
        try other.loop.performAndWait {}
        let source = RunLoop.CustomSource(label: "signaled") { gate.open() }
        other.loop.add(source)
        try one.loop.performAndWait {
            source.signal()
            other.loop.wakeUp()
        }
        gate.wait()
        _ = try one.loop.performAndWait { other.loop.perform {} }
        try other.loop.performAndWait {}
        let (sent, received) = (try #require(one.loop.stopRecording()), try #require(other.loop.stopRecording()))
        #expect(sent.posts.allSatisfy { $0.target == received.loopID })
        #expect(sent.posts.count == 2)
        for post in sent.posts {
            let callout = try #require(received.events.first { $0.flow == post.flow && $0.start >= post.at })
            #expect(callout.kind == .customSource || callout.kind == .perform)
        }
        try one.end()
        try other.end()
    }

    @Test func `many threads start, stop and read one loop's recording while it works`() throws {
        let thread = RunningLoop()
        let threads = (0..<4).map { seed in
            plainThread {
                for round in 0..<200 {
                    if (round + seed) % 3 == 0 { thread.loop.startRecording(capacity: 50) }
                    thread.loop.perform {}
                    _ = thread.loop.isRecording
                    if let recording = thread.loop.stopRecording() {
                        #expect(recording.events.allSatisfy { $0.duration >= .zero && $0.depth >= 0 })
                    }
                }
            }
        }
        for other in threads { try other.join() }
        try thread.end()
    }

    @Test func `a recording outlives the loop's thread, and one of an ended loop can be taken`() throws {
        let thread = RunningLoop()
        let loop = thread.loop
        loop.startRecording()
        try loop.performAndWait {}
        try thread.end()
        let recording = try #require(loop.stopRecording())
        #expect(kinds(recording).contains(.perform))
        loop.startRecording()
        #expect(loop.stopRecording()?.events.isEmpty == true)
    }

    @Test func `cancel of a custom source that a perform invalidates is recorded, unless there is none`() throws {
        try inManualTime { loop, _, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let cancelled = RunLoop.CustomSource(label: "cancelled", cancel: { _, _ in }, perform: {})
            let silent = RunLoop.CustomSource(label: "silent") {}
            for source in [cancelled, silent] { loop.add(source) }
            loop.startRecording()
            loop.perform {
                cancelled.invalidate()
                silent.invalidate()
            }
            _ = loop.run(for: .zero)
            let recording = try #require(loop.stopRecording())
            let ends = recording.events.filter { $0.kind == .invalidation }
            #expect(ends.map(\.label) == ["cancelled"])
            let perform = try #require(recording.events.first { $0.kind == .perform })
            for end in ends { #expect(end.start >= perform.start && end.start + end.duration <= perform.start + perform.duration) }
        }
    }

    @Test func `a recording says since when its events are all there`() throws {
        try inManualTime { loop, _, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.startRecording(capacity: 8)
            for _ in 0..<2 { loop.perform {} }
            _ = loop.run(for: .zero)
            let whole = try #require(loop.stopRecording())
            #expect(whole.overwritten == 0 && whole.completeSince == nil)
            loop.startRecording(capacity: 8)
            // Inside one run, whose pass began long before the events that are left.
            loop.perform {
                for _ in 0..<20 {
                    loop.perform(inModes: ["inner"]) {}
                    _ = loop.run(mode: "inner", for: .zero)
                }
            }
            _ = loop.run(for: .zero)
            let recording = try #require(loop.stopRecording())
            #expect(recording.overwritten > 0)
            let since = try #require(recording.completeSince)
            // The events are written when they end.
            let firstEnd = try #require(recording.events.map { $0.start + $0.duration }.min())
            #expect(since == firstEnd)
            #expect(recording.events.contains { $0.kind == .run && $0.start < since })
        }
    }
}
