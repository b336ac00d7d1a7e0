// Recordings in Chrome's Trace Event Format.
//
// The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (JSON Object Format). A loop is a thread of
// process 1. Spans are complete events (X), wake-ups are instants (i), and a post is an arrow: s where it was posted, f where it was
// delivered. Times are microseconds after the earliest event.

public import EventLoop

extension RunLoop.Recording {
    /// The recording in Chrome's Trace Event Format, which [Perfetto](https://ui.perfetto.dev) and `chrome://tracing` open: one track for
    /// the loop, with its spans nested, and arrows from what posted a closure, a signal or a message to the callout that delivered it.
    ///
    /// Thread-safe; calls nobody. Takes linear time and about 200 bytes for each event.
    public func traceEventJSON() -> String { Self.traceEventJSON([(name: "Run loop", recording: self)]) }

    /// Several loops on one time axis, a track for each, with arrows between them.
    ///
    /// `name` is the track's name; it may contain anything. A trace may have several recordings of one loop. Thread-safe; calls nobody. Takes
    /// linear time and about 200 bytes for each event.
    public static func traceEventJSON(_ recordings: [(name: String, recording: RunLoop.Recording)]) -> String {
        var trace = TraceEvents(Timeline(recordings))
        return trace.text()
    }
}

private struct TraceEvents {
    private let timeline: Timeline
    private var json: JSONText
    /// The ends of arrows at each span: numbers of arrows by track and span.
    private var ends: [(track: Int, span: Int, arrow: Int)] = []

    init(_ timeline: Timeline) {
        self.timeline = timeline
        let count = timeline.tracks.reduce(0) { $0 + $1.spans.count }
        json = JSONText(reserving: 1024 + 256 * (count + timeline.arrows.count))
        for (number, arrow) in timeline.arrows.enumerated() { ends.append((arrow.target.track, arrow.target.span, number)) }
        ends.sort { ($0.track, $0.span, $0.arrow) < ($1.track, $1.span, $1.arrow) }
    }

    mutating func text() -> String {
        json.write("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"overwritten\":")
        json.write(timeline.tracks.reduce(0) { $0.addingReportingOverflow($1.overwritten).partialValue })
        json.write("},\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"EventLoop\"}}")
        for index in timeline.tracks.indices { writeTrackName(index) }
        var nextEnd = 0
        var nextArrow = 0
        for index in timeline.tracks.indices { writeEvents(of: index, nextArrow: &nextArrow, nextEnd: &nextEnd) }
        json.write("\n]}\n")
        return json.string
    }

    /// Tracks are sorted as the recordings are.
    private mutating func writeTrackName(_ index: Int) {
        json.write(",\n{\"ph\":\"M\",\"pid\":1,\"tid\":")
        json.write(index + 1)
        json.write(",\"name\":\"thread_name\",\"args\":{\"name\":")
        json.write(quoted: timeline.tracks[index].name)
        json.write("}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":")
        json.write(index + 1)
        json.write(",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":")
        json.write(index)
        json.write("}}")
    }

    /// In the order of time. At the same time, a span comes before the spans in it, and before the arrows that end or begin in it: viewers
    /// attach an arrow to the innermost span that is open.
    private mutating func writeEvents(of index: Int, nextArrow: inout Int, nextEnd: inout Int) {
        let track = timeline.tracks[index]
        for (number, span) in track.spans.enumerated() {
            writeStarts(in: index, before: span.start, next: &nextArrow)
            let event = track.events[span.event]
            event.kind == .wakeUp ? writeInstant(event, span, index) : writeSpan(event, span, index)
            while nextEnd < ends.count, ends[nextEnd].track == index, ends[nextEnd].span == number {
                writeArrow("f", ends[nextEnd].arrow, index, at: span.start)
                nextEnd += 1
            }
        }
        writeStarts(in: index, before: .max, next: &nextArrow)
    }

    private mutating func writeStarts(in track: Int, before limit: Int64, next: inout Int) {
        while next < timeline.arrows.count, timeline.arrows[next].source.track == track, timeline.arrows[next].at < limit {
            writeArrow("s", next, track, at: timeline.arrows[next].at)
            next += 1
        }
    }

    private mutating func writeSpan(_ event: Timeline.Event, _ span: Timeline.Span, _ track: Int) {
        writeHead("X", track, at: span.start)
        json.write(",\"dur\":")
        json.write(microsecondsOf: span.end - span.start)
        writeDescription(of: event)
    }

    private mutating func writeInstant(_ event: Timeline.Event, _ span: Timeline.Span, _ track: Int) {
        writeHead("i", track, at: span.start)
        json.write(",\"s\":\"t\"")
        writeDescription(of: event)
    }

    private mutating func writeArrow(_ phase: StaticString, _ arrow: Int, _ track: Int, at time: Int64) {
        writeHead(phase, track, at: time)
        // `bp`: the arrow ends at the span that encloses it, not at the next one.
        json.write(",\"bp\":\"e\",\"cat\":\"post\",\"name\":\"post\",\"id\":")
        json.write(arrow + 1)
        json.write("}")
    }

    private mutating func writeHead(_ phase: StaticString, _ track: Int, at time: Int64) {
        json.write(",\n{\"ph\":\"")
        json.write(phase)
        json.write("\",\"pid\":1,\"tid\":")
        json.write(track + 1)
        json.write(",\"ts\":")
        json.write(microsecondsOf: time)
    }

    private mutating func writeDescription(of event: Timeline.Event) {
        json.write(",\"cat\":\"")
        json.writeEscaped(event.kind.rawValue)
        json.write("\",\"name\":\"")
        writeName(of: event)
        json.write("\",\"args\":{\"mode\":")
        json.write(quoted: event.mode.rawValue)
        json.write(",\"depth\":")
        json.write(event.depth)
        if let label = event.label {
            json.write(",\"label\":")
            json.write(quoted: label)
        }
        if let site = event.createdAt {
            json.write(",\"createdAt\":")
            json.write(quoted: site)
        }
        json.write("}}")
    }

    /// Viewers group spans by their names and color them by it.
    private mutating func writeName(of event: Timeline.Event) {
        if let label = event.label, !label.isEmpty { return json.writeEscaped(label) }
        json.writeEscaped(event.kind.rawValue)
        if let site = event.createdAt {
            json.write(" ")
            json.writeEscaped(site)
        }
    }
}
