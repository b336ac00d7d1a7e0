// Which callout delivered what was posted where.

internal import EventLoop

extension Timeline {
    /// A span that delivered something, sorted by what it delivered and when.
    private struct Delivery: Comparable {
        var loopID: UInt64
        var flow: UInt64
        var start: Int64
        var track: Int
        var span: Int

        static func < (a: Delivery, b: Delivery) -> Bool {
            if a.loopID != b.loopID { return a.loopID < b.loopID }
            if a.flow != b.flow { return a.flow < b.flow }
            if a.start != b.start { return a.start < b.start }
            return (a.track, a.span) < (b.track, b.span)
        }
    }

    /// An arrow for each post that one of the tracks delivered, also within one loop. A post from outside all recorded spans (a thread that
    /// posts between two runs) has no span to begin in, and gets none.
    static func arrows(_ posts: [[RunLoop.Recording.Post]], _ tracks: [Track], origin: Int64) -> [Arrow] {
        guard posts.contains(where: { !$0.isEmpty }) else { return [] }
        let deliveries = deliveries(in: tracks)
        var arrows: [Arrow] = []
        for (track, posts) in posts.enumerated() {
            let first = arrows.count
            for post in posts where post.flow != 0 {
                let at = post.at.nanoseconds.subtractingSaturated(origin)
                let wanted = Delivery(loopID: post.target, flow: post.flow, start: at, track: 0, span: 0)
                let position = partition(deliveries.count) { deliveries[$0] >= wanted }
                guard position < deliveries.count, deliveries[position].loopID == post.target, deliveries[position].flow == post.flow,
                    let source = tracks[track].innermostSpan(at: at)
                else { continue }
                let target = deliveries[position]
                // A reading of the clock at the very end of the source belongs to it.
                let span = tracks[track].spans[source]
                let inside = max(span.start, min(at, span.end - 1))
                arrows.append(Arrow(source: (track, source), at: inside, target: (target.track, target.span)))
            }
            arrows[first...].sort { $0.at < $1.at }
        }
        return arrows
    }

    private static func deliveries(in tracks: [Track]) -> [Delivery] {
        var deliveries: [Delivery] = []
        for (number, track) in tracks.enumerated() {
            for (index, span) in track.spans.enumerated() {
                let event = track.events[span.event]
                guard event.flow != 0, event.kind != .wakeUp else { continue }
                deliveries.append(Delivery(loopID: track.loopID, flow: event.flow, start: span.start, track: number, span: index))
            }
        }
        deliveries.sort()
        return deliveries
    }

    /// The first index for which `isReached` is true; it stays true from there on.
    fileprivate static func partition(_ count: Int, _ isReached: (Int) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if isReached(middle) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}

extension Timeline.Track {
    /// The innermost span that contains the instant, or ends with it; nil if there is none.
    fileprivate func innermostSpan(at instant: Int64) -> Int? {
        var index = Timeline.partition(spans.count) { spans[$0].start > instant } - 1
        // Every span that is open at the instant encloses the last one that began before it, or is that one.
        while index >= 0, spans[index].end < instant || events[spans[index].event].kind == .wakeUp { index = spans[index].parent }
        return index < 0 ? nil : index
    }
}
