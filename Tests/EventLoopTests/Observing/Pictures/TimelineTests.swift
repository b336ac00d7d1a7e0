// Rules proved here:
// - Spans get the parents that the loop gave them. Readings of the clock that cross by a little do not change that.
// - An arrow leads from the innermost span at the time of a post to the first event afterwards that delivered the same thing.

import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopObserving

@Suite(.bounded) struct TimelineTests {
    /// Each span with its parent: `pass 0-10 in run`.
    private func nesting(_ events: [Recording.Event]) -> [String] {
        let track = Timeline([("", Recording(events))]).tracks[0]
        return track.spans.map { span in
            let text = "\(track.events[span.event].kind) \(span.start)-\(span.end)"
            return span.parent < 0 ? text : text + " in \(track.events[track.spans[span.parent].event].kind)"
        }
    }

    @Test func `a run has passes, and a pass has sleeps and callouts, in whatever order they are recorded`() {
        let events: [Recording.Event] = [
            .span(.timer, 5, 8), .span(.sleep, 1, 5), .span(.pass, 0, 9), .span(.observer, 9, 12), .span(.pass, 9, 19), .span(.run, 0, 20),
        ]
        let expected = [
            "run 0-20", "pass 0-9 in run", "sleep 1-5 in pass", "timer 5-8 in pass", "pass 9-19 in run", "observer 9-12 in pass",
        ]
        #expect(nesting(events) == expected)
        #expect(nesting(events.reversed()) == expected)
    }

    @Test func `a nested run is inside its callout`() {
        #expect(
            nesting([
                .span(.run, 0, 100), .span(.pass, 0, 100), .span(.timer, 10, 90), .span(.run, 10, 90, depth: 2),
                .span(.pass, 10, 90, depth: 2),
                .span(.sleep, 10, 50, depth: 2), .span(.invalidation, 50, 60, depth: 2),
            ]) == [
                "run 0-100", "pass 0-100 in run", "timer 10-90 in pass", "run 10-90 in timer", "pass 10-90 in run", "sleep 10-50 in pass",
                "invalidation 50-60 in pass",
            ])
    }

    @Test func `a callout in a callout is inside it, even at the same depth`() {
        #expect(nesting([.span(.timer, 0, 50), .span(.invalidation, 10, 20)]) == ["timer 0-50", "invalidation 10-20 in timer"])
    }

    @Test func `C callbacks and wake-ups are inside the sleep`() {
        #expect(
            nesting([.span(.sleep, 0, 50), .span(.hostedLibrary, 20, 30), .span(.wakeUp, 40, 40), .span(.timer, 50, 60)])
                == ["sleep 0-50", "hostedLibrary 20-30 in sleep", "wakeUp 40-40 in sleep", "timer 50-60"])
    }

    @Test func `a callout that ends after its pass ends with it`() {
        #expect(nesting([.span(.pass, 0, 50), .span(.timer, 10, 53)]) == ["pass 0-50", "timer 10-50 in pass"])
    }

    @Test func `neighbors whose times cross follow each other`() {
        #expect(nesting([.span(.sleep, 0, 52), .span(.timer, 50, 90)]) == ["sleep 0-50", "timer 50-90"])
        #expect(nesting([.span(.pass, 0, 52), .span(.pass, 50, 90)]) == ["pass 0-50", "pass 50-90"])
        #expect(nesting([.span(.run, 0, 52), .span(.run, 50, 90)]) == ["run 0-50", "run 50-90"])
    }

    @Test func `a negative duration counts as none`() { #expect(nesting([.span(.timer, 10, 5)]) == ["timer 0-0"]) }

    /// Each arrow: `main timer @15 -> worker block @40`.
    private func arrows(_ recordings: [(name: String, recording: Recording)]) -> [String] {
        let timeline = Timeline(recordings)
        let name = { (end: (track: Int, span: Int)) in
            let track = timeline.tracks[end.track]
            return "\(track.name) \(track.events[track.spans[end.span].event].kind)"
        }
        return timeline.arrows.map { arrow in
            let target = timeline.tracks[arrow.target.track].spans[arrow.target.span]
            return "\(name(arrow.source)) @\(arrow.at) -> \(name(arrow.target)) @\(target.start)"
        }
    }

    @Test func `an arrow leads to the first callout after the post that delivered the same thing`() {
        let worker = Recording(
            [.span(.run, 0, 100), .span(.block, 5, 8, flow: 7), .span(.block, 40, 50, flow: 7), .span(.block, 60, 70, flow: 7)], loopID: 2)
        let events: [Recording.Event] = [.span(.run, 0, 100), .span(.pass, 0, 100), .span(.timer, 10, 20)]
        let main = Recording(events, loopID: 1, posts: [.init(to: 2, flow: 7, at: 15), .init(to: 2, flow: 7, at: 50)])
        #expect(
            arrows([("main", main), ("worker", worker)])
                == ["main timer @15 -> worker block @40", "main pass @50 -> worker block @60"])
        #expect(arrows([("main", main)]).isEmpty)
    }

    @Test func `several posts that one callout delivers have an arrow each`() {
        let both = Recording(
            [.span(.timer, 0, 20), .span(.customSource, 30, 40, flow: 3)], loopID: 1,
            posts: [.init(to: 1, flow: 3, at: 5), .init(to: 1, flow: 3, at: 6)])
        #expect(
            arrows([("main", both)]) == ["main timer @5 -> main customSource @30", "main timer @6 -> main customSource @30"])
    }

    @Test func `a post at the end of a callout begins in it`() {
        let main = Recording(
            [.span(.pass, 0, 100), .span(.timer, 10, 20), .span(.block, 20, 30, flow: 1)], loopID: 1, posts: [.init(to: 1, flow: 1, at: 20)]
        )
        // The block began at the same reading of the clock: it is the innermost span by then.
        #expect(arrows([("main", main)]) == ["main block @20 -> main block @20"])
        let later = Recording(
            [.span(.pass, 0, 100), .span(.timer, 10, 20), .span(.block, 21, 30, flow: 1)], loopID: 1, posts: [.init(to: 1, flow: 1, at: 20)]
        )
        #expect(arrows([("main", later)]) == ["main timer @19 -> main block @21"])
    }

    @Test func `a post outside all spans, for another loop, or of nothing in particular has no arrow`() {
        let main = Recording(
            [.span(.timer, 10, 20), .span(.block, 50, 60, flow: 1)], loopID: 1,
            posts: [
                .init(to: 1, flow: 1, at: 5), .init(to: 1, flow: 1, at: 30), .init(to: 9, flow: 1, at: 15), .init(to: 1, flow: 0, at: 15),
            ])
        #expect(arrows([("main", main)]).isEmpty)
    }
}
