// Lifecycle of a ring: made by `startRecording`; held by the `Observation`, by the owner until it notices the end, and by who takes the recording.

import Synchronization

/// The newest spans, labels and posts: three rings that one thread writes and any thread reads. The owner counts an entry as begun before it writes
/// it, and as written afterwards. A reader copies what is written, then looks how far the owner has begun, and drops what may have been written over.
final class EventRing: @unchecked Sendable {
    // SAFETY: every word of the rings is atomic, and the owner alone writes; `seenLabels` is accessed on the owning thread only.
    private let spans: WordRing, labels: WordRing, posts: WordRing
    /// Where labels were written lately, by a hash of their text.
    @exclusivity(unchecked) private var seenLabels = [(hash: UInt64, position: UInt64)](repeating: (0, 0), count: 64)
    let start = TickClock.Reading.now

    init(capacity: Int) {
        spans = WordRing(entries: capacity, words: 6)
        labels = WordRing(entries: max(4 * LabelWords.count, 2 * capacity), words: 1)
        posts = WordRing(entries: max(64, capacity / 2), words: 3)
    }

    // MARK: The owner
    @inline(__always) func record(_ span: OpenSpans.Entry, until end: UInt64) {
        let start = span.startTicks
        let label = span.hasLabel ? position(of: span.label) : 0
        append(start, TickClock.passed(start, end), span.mark, span.site, span.flow, label)
    }

    /// Records a span without a label.
    func record(_ mark: SpanMark, from start: UInt64, until end: UInt64) {
        append(start, TickClock.passed(start, end), mark.word, mark.site, mark.flow, 0)
    }

    func recordPost(to target: UInt64, _ flow: UInt64, at ticks: UInt64) {
        let entry = posts.begin()
        entry[0].store(target, ordering: .relaxed)
        entry[1].store(flow, ordering: .relaxed)
        entry[2].store(ticks, ordering: .relaxed)
        posts.end()
    }

    @inline(__always)
    private func append(_ start: UInt64, _ duration: UInt64, _ mark: UInt64, _ site: UInt64, _ flow: UInt64, _ label: UInt64) {
        let entry = spans.begin()
        entry[0].store(start, ordering: .relaxed)
        entry[1].store(duration, ordering: .relaxed)
        entry[2].store(mark, ordering: .relaxed)
        entry[3].store(site, ordering: .relaxed)
        entry[4].store(flow, ordering: .relaxed)
        entry[5].store(label, ordering: .relaxed)
        spans.end()
    }

    /// The position of a label in its ring, plus one. A label that is there still is not written again.
    @inline(never) private func position(of label: UnsafeMutablePointer<Atomic<UInt64>>) -> UInt64 {
        let count = LabelWords.used(label[0].load(ordering: .relaxed))
        var hash: UInt64 = 0
        for index in 0..<count { hash = (hash ^ label[index].load(ordering: .relaxed)) &* 0x9E37_79B9_7F4A_7C15 }
        let seen = seenLabels[Int(hash >> 58)]
        // Half of the ring ahead of it: it stays for a while.
        let isRecent = seen.hash == hash && labels.written - seen.position < UInt64(labels.entries / 2)
        if isRecent && isThere(label, count, at: seen.position) { return seen.position + 1 }
        let position = labels.written
        for index in 0..<count {
            labels.begin()[0].store(label[index].load(ordering: .relaxed), ordering: .relaxed)
            labels.end()
        }
        seenLabels[Int(hash >> 58)] = (hash, position)
        return position + 1
    }

    private func isThere(_ label: UnsafeMutablePointer<Atomic<UInt64>>, _ count: Int, at position: UInt64) -> Bool {
        for index in 0..<count where labels.word(position + UInt64(index), 0) != label[index].load(ordering: .relaxed) { return false }
        return true
    }

    // MARK: Any thread
    struct Entry {
        let mark: SpanMark
        let start: UInt64, duration: UInt64
        fileprivate(set) var label: String?
    }

    /// The newest events, in the order in which they ended, and how many there were before.
    func entries() -> (entries: [Entry], overwritten: Int) {
        let labelled = spans.copy { (words: (Int) -> UInt64) in
            (Entry(mark: SpanMark(word: words(2), site: words(3), flow: words(4)), start: words(0), duration: words(1)), words(5))
        }
        var texts: [UInt64: String] = [:]
        let entries = labelled.entries.map { entry, position in
            var entry = entry
            if position != 0 { entry.label = text(at: position - 1, &texts) }
            return entry
        }
        return (entries, labelled.lost)
    }

    /// Nil if the label was written over.
    private func text(at position: UInt64, _ known: inout [UInt64: String]) -> String? {
        if let text = known[position] { return text }
        let text = LabelWords.read { labels.word(position + UInt64($0), 0) }
        guard labels.isThere(position) else { return nil }
        known[position] = text
        return text
    }

    func allPosts() -> [(target: UInt64, flow: UInt64, ticks: UInt64)] {
        posts.copy { (words: (Int) -> UInt64) in (words(0), words(1), words(2)) }.entries
    }
}

/// Entries of some words each; the newest are kept.
private struct WordRing: ~Copyable, @unchecked Sendable {
    // SAFETY: as `EventRing`.
    typealias Words = UnsafeMutablePointer<Atomic<UInt64>>
    let entries: Int
    private let width: Int
    private let words: Words
    private let begun = Counter(), done = Atomic<UInt64>(0)
    /// The position of the entry that is written next, in words. The owner's.
    private let next = Counter()

    init(entries: Int, words width: Int) {
        (self.entries, self.width) = (entries, width)
        words = .allocate(capacity: entries * width)
        for index in 0..<entries * width { (words + index).initialize(to: Atomic(0)) }  // so that the owner takes no page faults
    }

    deinit { words.deallocate() }
    /// How many entries were written, with those that were written over.
    var written: UInt64 { begun.current }

    @inline(__always) borrowing func begin() -> Words {
        begun.increment()
        atomicMemoryFence(ordering: .releasing)
        return words + Int(truncatingIfNeeded: next.current)
    }

    @inline(__always) borrowing func end() {
        done.store(begun.current, ordering: .releasing)
        let position = next.current &+ UInt64(truncatingIfNeeded: width)
        next.set(position == UInt64(truncatingIfNeeded: entries &* width) ? 0 : position)
    }

    @inline(__always) borrowing func word(_ number: UInt64, _ index: Int) -> UInt64 {
        words[Int(number % UInt64(entries)) * width + index].load(ordering: .relaxed)
    }

    /// Whether an entry that was read a moment ago was not written over before.
    borrowing func isThere(_ number: UInt64) -> Bool {
        atomicMemoryFence(ordering: .acquiring)
        return number + UInt64(entries) >= begun.current
    }

    borrowing func copy<Entry>(_ read: ((Int) -> UInt64) -> Entry) -> (entries: [Entry], lost: Int) {
        let (words, width, entries) = (words, width, UInt64(entries))
        let end = done.load(ordering: .acquiring)
        let first = end - min(end, entries)
        let copied = (first..<end).map { number -> Entry in
            let entry = words + Int(number % entries) * width
            return read { entry[$0].load(ordering: .relaxed) }
        }
        atomicMemoryFence(ordering: .acquiring)
        let now = begun.current
        let overwritten = min(max(now - min(now, entries), first), end)
        return (Array(copied.dropFirst(Int(overwritten - first))), Int(overwritten))
    }
}
