// Rules proved here (docs/observing.md, "Open it in Perfetto"):
// - A trace is one JSON object in Chrome's Trace Event Format: a thread for each loop, complete events, instants, and paired arrows.
// - Times are microseconds after the earliest event of all loops, with all nanoseconds. They never decrease within a thread.
// - Spans of a thread nest, whatever the readings of the clock were.
// - Labels, names, modes and sites may be any text; times and depths any number.

import EventLoopTestSupport
import Foundation
import Testing

@testable import EventLoop
@testable import EventLoopObserving

@Suite(.bounded) struct TraceEventTests {
    @Test func `a recording of nothing is a trace without spans`() throws {
        for text in [Recording([]).traceEventJSON(), Recording.traceEventJSON([])] {
            #expect(try readTrace(text).allSatisfy { $0.phase == "M" })
        }
    }

    @Test func `each loop is a thread with its name, in the order of the recordings`() throws {
        let events = try readTrace(Recording.traceEventJSON([("main", .busy(10)), ("", .busy(4, loopID: 2)), ("<b>", Recording([]))]))
        let names = events.filter { $0.name == "thread_name" }
        #expect(names.map(\.thread) == [1, 2, 3])
        #expect(names.compactMap { $0.arguments["name"] as? String } == ["main", "", "<b>"])
        #expect(events.filter { $0.name == "thread_sort_index" }.compactMap { $0.arguments["sort_index"] as? Int } == [0, 1, 2])
        #expect(Set(events.filter { $0.phase == "X" }.map(\.thread)) == [1, 2])
    }

    @Test func `a span has its time after the earliest event of all loops, exact to a nanosecond`() throws {
        let early = Recording([.span(.timer, -5, 10)], loopID: 1)
        let late = Recording([.span(.timer, 1_234_567_890_118, 1_234_567_890_119)], loopID: 2)
        let text = Recording.traceEventJSON([("late", late), ("early", early)])
        #expect(text.contains("\"ts\":0.000,\"dur\":0.015"))
        #expect(text.contains("\"ts\":1234567890.123,\"dur\":0.001"))
    }

    @Test func `a span has kind, label, site, mode and depth`() throws {
        let full = Recording([.span(.descriptorSource, 0, 5, depth: 3, mode: "modal", label: "client", at: "a.swift:1")])
        let span = try #require(try readTrace(full.traceEventJSON()).last)
        #expect((span.phase, span.name, span.category) == ("X", "client", "descriptorSource"))
        #expect(span.arguments as NSDictionary == ["mode": "modal", "depth": 3, "label": "client", "createdAt": "a.swift:1"])
        let bare = try #require(try readTrace(Recording([.span(.job, 0, 5)]).traceEventJSON()).last)
        #expect(bare.name == "job")
        #expect(bare.arguments as NSDictionary == ["mode": "default", "depth": 1])
        let unnamed = try readTrace(Recording([.span(.block, 0, 5, label: "", at: "b.swift:2")]).traceEventJSON())
        #expect(unnamed.last?.name == "block b.swift:2")
    }

    @Test func `a wake-up is an instant`() throws {
        let events = try readTrace(Recording([.span(.sleep, 0, 100), .span(.wakeUp, 90, 95)]).traceEventJSON())
        let instant = try #require(events.last)
        #expect((instant.phase, instant.start, instant.fields["s"] as? String) == ("i", 90, "t"))
        #expect(instant.fields["dur"] == nil)
    }

    @Test(arguments: hostileTexts)
    func `every text arrives as it is`(text: String) throws {
        let event = Recording.Event.span(.timer, 0, 5, mode: .init(text), label: text, at: text)
        let json = Recording.traceEventJSON([(text, Recording([event]))])
        #expect(!json.utf8.contains { $0 < 0x20 && $0 != UInt8(ascii: "\n") })
        #expect(!json.contains("<") && !json.contains("\u{2028}") && !json.contains("\u{2029}"))
        let events = try readTrace(json)
        let span = try #require(events.last)
        for name in ["mode", "label", "createdAt"] { #expect(isSame(span.arguments[name], text)) }
        if !text.isEmpty { #expect(isSame(span.name, text)) }
        #expect(isSame(events.first { $0.name == "thread_name" }?.arguments["name"], text))
    }

    /// Compares the scalars: `==` takes U+00E9 and U+0065 U+0301 for the same.
    private func isSame(_ value: Any?, _ text: String) -> Bool {
        (value as? String)?.unicodeScalars.elementsEqual(text.unicodeScalars) ?? false
    }

    @Test func `times and depths may be any numbers`() throws {
        let extremes = [Int64.min, -1, 0, 1, .max]
        var events: [Recording.Event] = []
        for kind in Recording.Kind.allCases {
            for start in extremes {
                for end in extremes { for depth in [Int.min, 0, .max] { events.append(.span(kind, start, end, depth: depth)) } }
            }
        }
        var endless = Recording.Event.span(.timer, 0, 0)
        endless.duration = .seconds(Int64.max)
        var recording = Recording(events + [endless], overwritten: .max, posts: extremes.map { .init(to: 1, flow: 1, at: $0) })
        recording.events[0].flow = 1
        let trace = try readTrace(Recording.traceEventJSON([("a", recording), ("b", recording)]))
        #expect(trace.filter { $0.phase == "X" || $0.phase == "i" }.count == 2 * events.count + 2)
        _ = try readData(of: recording.timelineHTML())
    }

    @Test(arguments: 0..<40 as Range<UInt64>)
    func `spans of a thread nest, and times never decrease`(seed: UInt64) throws {
        let trace = try readTrace(randomRecording(seed: seed).traceEventJSON())
        var open: [Int64] = []
        var last: Int64 = 0
        for event in trace where event.phase != "M" {
            #expect(event.start >= last)
            last = event.start
            guard event.phase == "X" else { continue }
            while let end = open.last, end <= event.start { open.removeLast() }
            if let end = open.last { #expect(event.end <= end, "\(event.fields)") }
            open.append(event.end)
        }
    }

    @Test(arguments: 0..<40 as Range<UInt64>)
    func `arrows come in pairs, inside spans, forward in time`(seed: UInt64) throws {
        let pair = [
            ("a", randomRecording(seed: seed, loopID: 1, target: 2)), ("b", randomRecording(seed: seed + 1000, loopID: 2, target: 1)),
        ]
        let trace = try readTrace(Recording.traceEventJSON(pair.map { (name: $0.0, recording: $0.1) }))
        let starts = Dictionary(uniqueKeysWithValues: trace.filter { $0.phase == "s" }.map { ($0.id, $0) })
        let ends = Dictionary(uniqueKeysWithValues: trace.filter { $0.phase == "f" }.map { ($0.id, $0) })
        #expect(Set(starts.keys) == Set(ends.keys))
        for (id, start) in starts {
            let end = try #require(ends[id])
            #expect(start.category == end.category && start.name == end.name && end.fields["bp"] as? String == "e")
            for arrow in [start, end] {
                #expect(trace.contains { $0.phase == "X" && $0.thread == arrow.thread && $0.start <= arrow.start && arrow.start <= $0.end })
            }
        }
    }

    @Test func `the spans of 65,536 events are all there`() throws {
        let recording = Recording.busy(65_536)
        let text = recording.traceEventJSON()
        #expect(text.utf8.count < 200 * recording.events.count)
        #expect(text.utf8.count(where: { $0 == UInt8(ascii: "\n") }) == recording.events.count + 5)
    }
}
