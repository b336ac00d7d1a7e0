// The slowest callouts of a loop, while it runs.

import Synchronization

/// At most eight callouts, one for each place of creation.
///
/// The owner compares each callout with atomics. Only a callout that enters the list, or is the longest of its place, takes the lock.
final class SlowestCallouts: @unchecked Sendable {
    // SAFETY: `words` and the counters are atomic, and only the owner writes them; `texts` is guarded by its lock.

    private static let capacity = 8

    /// Parallel to the words.
    private let texts = LoopLock<[CalloutItem]>([])
    private let words: UnsafeMutablePointer<Entry>
    private let count = Counter()
    private let shortest = Counter()
    /// Another thread asked for an empty list; the owner empties it before the next callout that it notes.
    private let wasReset = Atomic<Bool>(false)

    private struct Entry: ~Copyable {
        /// The place of creation; the kind of callouts that have none.
        let key = Counter()
        /// In ticks.
        let duration = Counter()
        let count = Counter()
    }

    init() {
        words = .allocate(capacity: Self.capacity)
        for index in 0..<Self.capacity { (words + index).initialize(to: Entry()) }
    }

    deinit { words.deallocate() }

    // MARK: The owner

    @inline(never)
    func note(_ span: OpenSpans.Entry, until end: UInt64) {
        let code = UInt8(truncatingIfNeeded: span.mark)
        if !RunLoop.Recording.Kind.isCallout(code: code) { return }
        if wasReset.load(ordering: .acquiring) { removeAll() }
        let duration = TickClock.passed(span.startTicks, end)
        let key = span.site != 0 ? span.site : UInt64(code) + 1
        let count = Int(truncatingIfNeeded: count.current)
        var index = 0
        while index < count {  // ends: at most eight iterations
            if words[index].key.current == key {
                words[index].count.increment()
                if duration > words[index].duration.current { replace(index, key, span, duration, keepsCount: true) }
                return
            }
            index += 1
        }
        if count < Self.capacity || duration > shortest.current { enter(key, span, duration, count) }
    }

    @inline(never)
    private func enter(_ key: UInt64, _ span: OpenSpans.Entry, _ duration: UInt64, _ count: Int) {
        if count < Self.capacity { return replace(count, key, span, duration, keepsCount: false) }
        let index = (0..<count).min { words[$0].duration.current < words[$1].duration.current }!  // there are eight
        replace(index, key, span, duration, keepsCount: false)
    }

    @inline(never)
    private func replace(_ index: Int, _ key: UInt64, _ span: OpenSpans.Entry, _ duration: UInt64, keepsCount: Bool) {
        let kind = RunLoop.Recording.Kind(code: UInt8(truncatingIfNeeded: span.mark))
        let text = CalloutItem(kind: kind, site: CreationSite(word: span.site), label: LabelWords.read(span.label))
        texts.withLock { texts in
            if index == texts.count { texts.append(text) } else { texts[index] = text }
            words[index].key.set(key)
            words[index].duration.set(duration)
            if !keepsCount { words[index].count.set(1) }
            if index == Int(count.current) { count.increment() }
            shortest.set((0..<Int(count.current)).map { words[$0].duration.current }.min() ?? 0)
        }
    }

    private func removeAll() {
        texts.withLock { texts in
            wasReset.store(false, ordering: .releasing)
            texts = []
            count.set(0)
            shortest.set(0)
        }
    }

    // MARK: Any thread

    /// Empties the list as readers see it. The owner empties it before the next callout that it notes.
    func reset() { texts.withLock { _ in wasReset.store(true, ordering: .releasing) } }

    /// Slowest first.
    func list() -> [RunLoop.SlowCallout] {
        let unit = TickClock.nanosecondsPerTick
        let found = texts.withLock { texts -> [RunLoop.SlowCallout] in
            if wasReset.load(ordering: .relaxed) { return [] }
            return texts.enumerated().map { index, text in
                RunLoop.SlowCallout(
                    kind: text.kind, label: text.label, createdAt: text.site?.description,
                    duration: .nanoseconds(Int64(clamping: Double(words[index].duration.current) * unit)),
                    count: words[index].count.current)
            }
        }
        return found.sorted { $0.duration > $1.duration }
    }
}
