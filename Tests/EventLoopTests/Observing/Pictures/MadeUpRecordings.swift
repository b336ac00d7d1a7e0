// Recordings that no loop made, for tests of the pictures.

import EventLoopTestSupport

@testable import EventLoop

typealias Recording = RunLoop.Recording

/// Text that ends strings, elements and lines, or that a careless writer breaks.
let hostileTexts = [
    "", "\"", "\\", "\\\"", "</script>", "</script ><img src=x onerror=alert(1)>", "<!--<script>", "]]>", "&lt;&#60;", "'", "`${alert(1)}`",
    "\u{0}", "\u{1}\u{8}\u{B}\u{1F}\u{7F}", "\n\r\t", "\u{2028}", "\u{2029}", "\u{20A8}\u{A8}\u{A9}\u{80A8}",
    "\u{202E}gnp.exe", "a\u{FEFF}", "\u{FFFF}",
    "e\u{301}", "👩‍👩‍👧‍👦", "\u{10FFFF}", "\\u003c/script", String(repeating: "\"<", count: 5000),
]

extension Recording {
    init(_ events: [Event], overwritten: Int = 0, loopID: UInt64 = 1, posts: [Post] = []) {
        self.init(events: events, overwritten: overwritten, loopID: loopID, posts: posts)
    }

    /// `count` events: a run whose passes sleep, and call something.
    static func busy(_ count: Int, loopID: UInt64 = 1, label: String = "busy") -> Recording {
        var events: [Event] = [.span(.run, 0, Int64(count) * 1000)]
        for start in stride(from: Int64(0), to: Int64(count - 1) / 3 * 3000, by: 3000) {
            events += [.span(.pass, start, start + 2900), .span(.sleep, start + 100, start + 1000)]
            events.append(.span(.timer, start + 1100, start + 2000 + start % 700, label: label))
        }
        return Recording(events, loopID: loopID)
    }
}

extension Recording.Event {
    /// From `start` to `end` in nanoseconds.
    static func span(
        _ kind: Recording.Kind, _ start: Int64, _ end: Int64, depth: Int = 1, mode: RunLoop.Mode = .default, label: String? = nil,
        at site: String? = nil, flow: UInt64 = 0
    ) -> Recording.Event {
        Recording.Event(
            kind: kind, start: RunLoop.Instant(nanoseconds: start), duration: .nanoseconds(end) - .nanoseconds(start), mode: mode,
            depth: depth,
            label: label, createdAt: site, flow: flow)
    }
}

extension Recording.Post {
    init(to target: UInt64, flow: UInt64, at time: Int64) {
        self.init(to: target, flow: flow, at: RunLoop.Instant(nanoseconds: time))
    }
}

/// Spans whose ends cross those of their neighbors, by little and by much, unsorted; and posts.
func randomRecording(seed: UInt64, loopID: UInt64 = 1, target: UInt64 = 1) -> Recording {
    var random = SplitMix64(seed: seed)
    var events: [Recording.Event] = []
    var time: Int64 = 0
    while events.count < 60 {
        time += .random(in: 0...40, using: &random)
        let length = Int64.random(in: 0...(Bool.random(using: &random) ? 20 : 300), using: &random)
        let kind = Recording.Kind.allCases.randomElement(using: &random)!  // there are kinds
        events.append(.span(kind, time, time + length, depth: .random(in: 1...3, using: &random), flow: .random(in: 0...5, using: &random)))
    }
    let posts = (0..<20).map { _ in
        Recording.Post(to: target, flow: .random(in: 0...5, using: &random), at: .random(in: -10...time, using: &random))
    }
    return Recording(events.shuffled(using: &random), loopID: loopID, posts: posts)
}
