// Recordings on one time axis, with spans that nest: what both pictures (trace events and the page) draw.

internal import EventLoop

/// Several recordings with a common origin of time. Spans are repaired so that each lies inside its parent and siblings do not overlap:
/// clock readings of neighbors may touch or cross by some nanoseconds, and Perfetto drops spans that overlap without nesting.
struct Timeline {
    typealias Event = RunLoop.Recording.Event

    /// An event on the axis. `start` and `end` are nanoseconds after the earliest event of all recordings.
    struct Span {
        /// The index in `Track.events`.
        var event: Int
        var start: Int64
        var end: Int64
        /// The index in `Track.spans` of the innermost span around this one; -1 if there is none.
        var parent: Int
    }

    struct Track {
        var name: String
        var loopID: UInt64
        var events: [Event]
        var overwritten: Int
        /// Since when no event is missing.
        var completeSince: Int64
        /// By start; a parent comes before its children.
        var spans: [Span]
    }

    /// Code in one span posted something that another span delivered.
    struct Arrow {
        var source: (track: Int, span: Int)
        /// When it was posted: inside the source.
        var at: Int64
        var target: (track: Int, span: Int)
    }

    var tracks: [Track] = []
    /// By the time of the post, for each track of a source.
    var arrows: [Arrow] = []

    init(_ recordings: [(name: String, recording: RunLoop.Recording)]) {
        var origin = Int64.max
        for entry in recordings { for event in entry.recording.events { origin = min(origin, event.start.nanoseconds) } }
        for (name, recording) in recordings {
            tracks.append(
                Track(
                    name: name, loopID: recording.loopID, events: recording.events, overwritten: recording.overwritten,
                    completeSince: max(0, recording.completeSince.map { $0.nanoseconds.subtractingSaturated(origin) } ?? 0),
                    spans: Self.nested(recording.events, origin: origin)))
        }
        arrows = Self.arrows(recordings.map(\.recording.posts), tracks, origin: origin)
    }
}

extension Timeline {
    /// The events by start, each inside its parent.
    private static func nested(_ events: [Event], origin: Int64) -> [Span] {
        var spans: [Span] = []
        spans.reserveCapacity(events.count)
        for (index, event) in events.enumerated() {
            let start = event.start.nanoseconds.subtractingSaturated(origin)
            let length = event.kind == .wakeUp ? 0 : max(0, event.duration.saturatedNanoseconds)
            spans.append(Span(event: index, start: start, end: start.addingSaturated(length), parent: -1))
        }
        let comesBefore = { (a: Span, b: Span) -> Bool in
            if a.start != b.start { return a.start < b.start }
            let (first, second) = (events[a.event].level, events[b.event].level)
            if first != second { return first < second }
            if a.end != b.end { return a.end > b.end }
            return a.event < b.event
        }
        // A recording comes sorted, except for spans that start at the same time.
        let isSorted = zip(spans, spans.dropFirst()).allSatisfy { !comesBefore($1, $0) }
        if !isSorted { spans.sort(by: comesBefore) }
        nest(&spans, events)
        return spans
    }

    /// Finds the parents, and repairs spans that overlap without nesting.
    private static func nest(_ spans: inout [Span], _ events: [Event]) {
        var open: [Int] = []
        for index in spans.indices {
            while let top = open.last, spans[top].end <= spans[index].start { open.removeLast() }
            while let top = open.last, spans[index].end > spans[top].end {
                if isInside(spans[index], spans[top], events) {
                    spans[index].end = spans[top].end
                } else {
                    // They follow each other. The spans in `top` have ended, so it can end here.
                    spans[top].end = spans[index].start
                    open.removeLast()
                }
            }
            spans[index].parent = open.last ?? -1
            if events[spans[index].event].kind != .wakeUp { open.append(index) }
        }
    }

    /// Whether a span that ends after an earlier one belongs into it nevertheless.
    private static func isInside(_ span: Span, _ earlier: Span, _ events: [Event]) -> Bool {
        let (inner, outer) = (events[span.event], events[earlier.event])
        switch outer.kind {
        // Runs and passes enclose everything but runs and passes of their own or an outer depth.
        case .run, .pass: return inner.level > outer.level
        // Two callouts: where the greater part of it lies.
        default: return earlier.end &- span.start >= span.end.subtractingSaturated(earlier.end)
        }
    }
}

extension RunLoop.Recording.Event {
    /// Events of a lower level enclose those of a higher one.
    fileprivate var level: Int {
        // No real nesting is that deep; a user may have changed the value.
        let outer = 4 * min(max(depth, 0), 1 << 32)
        switch kind {
        case .run: return outer
        case .pass: return outer + 1
        case .wakeUp: return outer + 3
        default: return outer + 2
        }
    }
}
