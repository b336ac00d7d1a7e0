import Synchronization

/// The slowest callouts of a loop, one for each place of creation. Only a callout that enters the list, or is the longest there, takes the lock.
final class SlowestCallouts: @unchecked Sendable {
    // SAFETY: `words` and `count` are atomic; `texts` is guarded by its lock, which is also taken to empty the list.

    private static let capacity = 8
    /// Parallel to the words.
    private let texts = LoopLock<[CalloutItem]>([])
    private let words: UnsafeMutablePointer<Entry>
    private let count = Counter()

    private struct Entry: ~Copyable {
        /// `key`: the place of creation; the kind of callouts that have none. `duration`: in ticks.
        let key = Counter(), duration = Counter(), count = Counter()
    }

    init() {
        words = .allocate(capacity: Self.capacity)
        for index in 0..<Self.capacity { (words + index).initialize(to: Entry()) }
    }

    deinit { words.deallocate() }

    // MARK: The owner
    @inline(never) func note(_ span: OpenSpans.Entry, until end: UInt64) {
        let code = UInt8(truncatingIfNeeded: span.mark)
        if !RunLoop.Recording.Kind.isCallout(code: code) { return }
        let duration = TickClock.passed(span.startTicks, end)
        let key = span.site != 0 ? span.site : UInt64(code) + 1
        let count = Int(truncatingIfNeeded: count.current)
        var shortest = 0
        for index in 0..<count {
            if words[index].key.current == key {
                words[index].count.increment()
                if duration > words[index].duration.current { replace(index, key, span, duration, count: words[index].count.current) }
                return
            }
            if words[index].duration.current < words[shortest].duration.current { shortest = index }
        }
        if count < Self.capacity { return replace(count, key, span, duration, count: 1) }
        if duration > words[shortest].duration.current { replace(shortest, key, span, duration, count: 1) }
    }

    @inline(never) private func replace(_ index: Int, _ key: UInt64, _ span: OpenSpans.Entry, _ duration: UInt64, count newCount: UInt64) {
        let kind = RunLoop.Recording.Kind(code: UInt8(truncatingIfNeeded: span.mark))
        let text = CalloutItem(kind: kind, site: CreationSite(word: span.site), label: LabelWords.read(span.label))
        texts.withLock { texts in
            // The list may have been emptied since the owner looked at it.
            let isNew = index >= texts.count
            let place = min(index, texts.count)
            if isNew { texts.append(text) } else { texts[place] = text }
            words[place].key.set(key)
            words[place].duration.set(duration)
            words[place].count.set(isNew ? 1 : newCount)
            count.set(UInt64(texts.count))
        }
    }

    // MARK: Any thread
    func reset() {
        texts.withLock { texts in
            texts = []
            count.set(0)
        }
    }

    func list() -> [RunLoop.SlowCallout] {
        let unit = TickClock.nanosecondsPerTick
        let found = texts.withLock { texts in
            texts.enumerated().map { ($0.element, duration: words[$0.offset].duration.current, count: words[$0.offset].count.current) }
        }
        return found.sorted { $0.duration > $1.duration }.map { item, duration, count in
            RunLoop.SlowCallout(
                kind: item.kind, label: item.label, createdAt: item.site?.description,
                duration: .nanoseconds(Int64(clamping: Double(duration) * unit)), count: count)
        }
    }
}
