internal import CPlatform
import Synchronization

/// Made with the first wish to observe a loop's callouts, and kept with the loop. `Attention.observed` is set while somebody does (decision 37).
final class Observation: @unchecked Sendable {
    // SAFETY: atomics, a value with a lock of its own, and what the loop's thread owns.

    struct Wishes: Sendable {
        var watchdogs = 0
        var wantsSlowest = false  // from then on, until the loop ends
        var ring: EventRing?
    }

    let wishes = LoopLock(Wishes())
    /// Empty while nobody observes the loop.
    let spans = OpenSpans()
    let slowest = SlowestCallouts()
    /// The thread works inside a run: it is not in a sleep, and not between two steps of a host.
    let isWorking = Atomic<Bool>(false)
    /// Somebody wants to know when the thread begins to work.
    let alarm = Atomic<Bool>(false)
    /// The owner keeps `isWorking`: only a watchdog asks whether the thread works.
    let isWatchAdopted = Atomic<Bool>(false)
    // SAFETY: touched on the loop's thread only.
    @exclusivity(unchecked) private var owned = Owned()

    private struct Owned {
        /// Nil while nobody records.
        var ring: EventRing? { didSet { ringReference = ring.map { Borrowed($0, keptBy: .loop) } } }
        private(set) var ringReference: Borrowed<EventRing>?
        var findsSlowest = false
        /// When the last span of a callout or a sleep ended.
        var lastEnd: UInt64 = 0
    }

    deinit { if wishes.withLock({ $0.ring != nil }) { cplatform_count_recordings(-1) } }

    /// Exchanges the ring. The old one is released by the caller, outside the lock. Any thread.
    func setRing(_ ring: EventRing?) -> EventRing? {
        var ring = ring
        wishes.withLock { swap(&$0.ring, &ring) }
        return ring
    }

    // MARK: The owner
    var ringReference: Borrowed<EventRing>? { owned.ringReference }

    /// Takes what others wish. False if nobody observes the loop any more.
    func takeWishes() -> Bool {
        let (ring, findsSlowest, isWatched) = wishes.withLock { ($0.ring, $0.wantsSlowest, $0.watchdogs > 0) }
        (owned.ring, owned.findsSlowest) = (ring, findsSlowest)
        isWatchAdopted.store(isWatched, ordering: .releasing)
        return ring != nil || findsSlowest || isWatched
    }

    /// The thread begins to work. It stores `isWorking` before it loads `alarm`; the watchdog stores `alarm` before it loads `isWorking`.
    @inline(__always) func beginWorking() {
        if !isWatchAdopted.load(ordering: .relaxed) { return }
        isWorking.store(true, ordering: .sequentiallyConsistent)
        if alarm.load(ordering: .sequentiallyConsistent) { ringAlarm() }
    }

    @inline(__always)
    func endWorking() { if isWatchAdopted.load(ordering: .relaxed) { isWorking.store(false, ordering: .sequentiallyConsistent) } }
    @inline(never) private func ringAlarm() { if alarm.exchange(false, ordering: .sequentiallyConsistent) { cplatform_ring_alarm() } }

    /// Closes the innermost span, and records it.
    @inline(__always) func close(at end: UInt64) {
        let span = spans.top
        owned.lastEnd = end
        if let reference = owned.ringReference { reference.use { $0.record(span, until: end) } }
        if owned.findsSlowest { slowest.note(span, until: end) }
        spans.pop()
    }

    @inline(__always) var runsOpen: Int { spans.depth == 0 ? 0 : SpanMark.depth(of: spans.top.mark) }

    /// A pass begins, and the pass before it ends.
    @inline(__always) func beginPass(_ mark: SpanMark) {
        if spans.depth > 0 && spans.top.mark == mark.word {
            // The new pass begins where the last span ended, which saves reading the clock.
            let ticks = owned.lastEnd > spans.top.startTicks ? owned.lastEnd : TickClock.ticks
            owned.ringReference?.use { $0.record(spans.top, until: ticks) }
            return spans.restart(at: ticks)
        }
        _ = spans.push(mark, at: TickClock.ticks)
    }

    func endPass(_ mark: SpanMark) { if spans.depth > 0 && spans.top.mark == mark.word { close(at: TickClock.ticks) } }

    @inline(__always) func recordSleep(_ mark: SpanMark, from start: UInt64, until end: UInt64) {
        owned.lastEnd = end
        owned.ringReference?.use { $0.record(mark, from: start, until: end) }
    }

    /// Closes the spans of runs that are deeper than `depth`, and of their callouts. The callout around them goes on.
    func closeRuns(deeperThan depth: Int) {
        let ticks = TickClock.ticks
        while spans.depth > 0, SpanMark.depth(of: spans.top.mark) > depth { close(at: ticks) }  // ends: each iteration removes one
        spans.resume(at: ticks)
    }
}
