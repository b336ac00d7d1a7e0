// The slowest callouts (semantics 22.4): who switches them on, which ones they are, and what is counted.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite(.tags(.threads)) struct SlowestCalloutTests {
    /// Keeps the thread busy: the callout must be longer than the others, whatever the machine does.
    private static func spin(milliseconds: Int64) {
        let end = RunLoop.Instant.now + .milliseconds(milliseconds)
        while RunLoop.Instant.now < end {}
    }

    @Test func `the first read switches the list on, and is empty`() throws {
        try inManualTime { loop, _, _ in
            loop.performBlock {}
            _ = loop.run(for: .zero)
            #expect(loop.statistics.slowestCallouts.isEmpty)
            loop.performBlock {}
            _ = loop.run(for: .zero)
            #expect(loop.statistics.slowestCallouts.map(\.kind) == [.block])
        }
    }

    @Test func `reading other statistics does not switch it on`() throws {
        try inManualTime { loop, _, _ in
            for _ in 0..<2 {
                _ = loop.statistics.passes
                loop.performBlock {}
                _ = loop.run(for: .zero)
            }
            #expect(loop.statistics.slowestCallouts.isEmpty)
        }
    }

    @Test func `a place has one entry, with its longest callout and the number of all of them`() throws {
        try inManualTime { loop, clock, _ in
            _ = loop.statistics.slowestCallouts
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: clock.now, interval: .milliseconds(1), label: "grid") { _ in
                    calls.increment()
                    if calls.value == 2 { Self.spin(milliseconds: 3) }
                })
            for _ in 0..<5 {
                _ = loop.run(for: .zero)
                clock.advance(by: .milliseconds(1))
            }
            let slowest = loop.statistics.slowestCallouts
            #expect(slowest.count == 1)
            #expect(slowest.first?.kind == .timer)
            #expect(slowest.first?.label == "grid")
            #expect(slowest.first?.createdAt?.hasPrefix("EventLoopTests/SlowestCalloutTests.swift:") == true)
            #expect(slowest.first?.count == 5)
            #expect((slowest.first?.duration ?? .zero) >= .milliseconds(3))
        }
    }

    /// With durations of its own: on a busy machine, a callout that does nothing may take longer than one that computes.
    @Test func `of more than eight places the eight slowest stay, slowest first`() throws {
        try onFreshThread { _ in
            let spans = OpenSpans()
            let slowest = SlowestCallouts()
            // Twelve places: one for each line number. Their durations come in no order.
            let durations = (0..<12 as Range<UInt64>).map { 1_000_000 * (1 + $0 * 5 % 12) }
            for (index, duration) in durations.enumerated() {
                let site = CreationSite(#fileID, UInt(1_000 + index)).word
                let isOpen = spans.push(SpanMark(.observer, depth: 1, modeIndex: 0, site: site), label: "\(duration)", at: 5)
                #expect(isOpen)
                slowest.note(spans.top, until: 5 + duration)
            }
            let list = slowest.list()
            let expected = durations.sorted(by: >).prefix(8).map { "\($0)" }
            #expect(list.compactMap(\.label) == expected)
            #expect(zip(list, list.dropFirst()).allSatisfy { $0.duration > $1.duration })
        }
    }

    @Test func `a nested run counts as part of its callout`() throws {
        try inManualTime { loop, _, _ in
            _ = loop.statistics.slowestCallouts
            loop.performBlock {
                loop.performBlock(inModes: ["inner"], line: 4_711) { Self.spin(milliseconds: 2) }
                _ = loop.run(mode: "inner", for: .zero)
            }
            _ = loop.run(for: .zero)
            let slowest = loop.statistics.slowestCallouts
            #expect(slowest.count == 2)
            #expect(slowest.last?.createdAt?.hasSuffix(":4711") == true)
            #expect(slowest.allSatisfy { $0.duration >= .milliseconds(2) })
        }
    }

    @Test func `after a reset the list begins anew`() throws {
        try inManualTime { loop, _, _ in
            _ = loop.statistics.slowestCallouts
            loop.performBlock { Self.spin(milliseconds: 2) }
            _ = loop.run(for: .zero)
            loop.resetSlowestCallouts()
            #expect(loop.statistics.slowestCallouts.isEmpty)
            loop.perform {}
            _ = loop.run(for: .zero)
            #expect(loop.statistics.slowestCallouts.map(\.kind) == [.perform])
        }
    }

    @Test func `other threads read and reset the list while the loop works`() throws {
        let thread = RunningLoop()
        let readers = (0..<3).map { _ in
            plainThread {
                for _ in 0..<300 {
                    let slowest = thread.loop.statistics.slowestCallouts
                    #expect(slowest.count <= 8 && slowest.allSatisfy { $0.count > 0 })
                    thread.loop.perform {}
                    thread.loop.resetSlowestCallouts()
                }
            }
        }
        for reader in readers { try reader.join() }
        try thread.end()
    }
}
