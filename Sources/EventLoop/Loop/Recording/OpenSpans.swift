import Synchronization

/// What a span is about, beside its times.
struct SpanMark {
    let kind: RunLoop.Recording.Kind
    let depth: Int, modeIndex: Int
    /// The word of a `CreationSite`; zero where there is no item.
    let site: UInt64
    /// What the callout delivers; see `FlowKey`.
    let flow: UInt64

    init(_ kind: RunLoop.Recording.Kind, depth: Int, modeIndex: Int, site: UInt64 = 0, flow: UInt64 = 0) {
        (self.kind, self.depth, self.modeIndex, self.site, self.flow) = (kind, depth, modeIndex, site, flow)
    }

    /// Kind, depth and mode in one word.
    @inline(__always) var word: UInt64 {
        UInt64(kind.code) | UInt64(truncatingIfNeeded: min(depth, 0xFF_FFFF)) << 8 | UInt64(UInt32(truncatingIfNeeded: modeIndex)) << 32
    }

    init(word: UInt64, site: UInt64, flow: UInt64) {
        self.init(
            RunLoop.Recording.Kind(code: UInt8(truncatingIfNeeded: word)), depth: Self.depth(of: word), modeIndex: Int(word >> 32),
            site: site, flow: flow)
    }

    @inline(__always) static func depth(of word: UInt64) -> Int { Int(word >> 8 & 0xFF_FFFF) }
}

/// The spans in progress, outermost first: what the loop's thread is doing. The owner pushes and pops without a lock, an allocation or a system call.
/// Other threads read an entry, and know by its serial number whether it changed meanwhile. Lifecycle: the storage is freed with the stack.
struct OpenSpans: ~Copyable, @unchecked Sendable {
    // SAFETY: every word is atomic. The owner alone writes; a reader checks the serial number before and after.

    /// More spans than this are neither shown nor recorded: some 80 runs, one inside another.
    static let capacity = 256
    fileprivate enum Field {
        static let serial = 0, start = 1, resumed = 2, mark = 3, site = 4, flow = 5, label = 6
        static let count = label + LabelWords.count
    }

    private let words: UnsafeMutablePointer<Atomic<UInt64>>
    private let depthWord = Atomic<Int>(0)
    private let lastSerial = Counter()

    init() {
        let count = Self.capacity * Field.count
        words = .allocate(capacity: count)
        for index in 0..<count { (words + index).initialize(to: Atomic(0)) }
    }

    deinit { words.deallocate() }

    // MARK: The owner
    @inline(__always) var depth: Int { depthWord.load(ordering: .relaxed) }

    /// False if there are too many.
    @inline(__always) borrowing func push(_ mark: SpanMark, label: String? = nil, at ticks: UInt64) -> Bool {
        let depth = depth
        if depth == Self.capacity { return false }
        let entry = words + depth &* Field.count
        entry[Field.serial].store(0, ordering: .relaxed)
        atomicMemoryFence(ordering: .releasing)
        entry[Field.start].store(ticks, ordering: .relaxed)
        entry[Field.resumed].store(ticks, ordering: .relaxed)
        entry[Field.mark].store(mark.word, ordering: .relaxed)
        entry[Field.site].store(mark.site, ordering: .relaxed)
        entry[Field.flow].store(mark.flow, ordering: .relaxed)
        if let label { LabelWords.write(label, to: entry + Field.label) } else { entry[Field.label].store(0, ordering: .relaxed) }
        entry[Field.serial].store(nextSerial(), ordering: .releasing)
        depthWord.store(depth &+ 1, ordering: .releasing)
        return true
    }

    /// Replaces the innermost span by one of the same mark that begins at `ticks`. The span has no label.
    @inline(__always) borrowing func restart(at ticks: UInt64) {
        let entry = words + (depth &- 1) &* Field.count
        entry[Field.serial].store(0, ordering: .relaxed)
        atomicMemoryFence(ordering: .releasing)
        entry[Field.start].store(ticks, ordering: .relaxed)
        entry[Field.resumed].store(ticks, ordering: .relaxed)
        entry[Field.serial].store(nextSerial(), ordering: .releasing)
    }

    @inline(__always) borrowing func pop() { depthWord.store(depth &- 1, ordering: .releasing) }
    borrowing func removeAll() { depthWord.store(0, ordering: .releasing) }

    /// A nested run inside the innermost span has ended.
    borrowing func resume(at ticks: UInt64) {
        guard depth > 0 else { return }
        let entry = words + (depth - 1) * Field.count
        entry[Field.resumed].store(ticks, ordering: .relaxed)
        entry[Field.serial].store(nextSerial(), ordering: .releasing)
    }

    @inline(__always) private borrowing func nextSerial() -> UInt64 {
        lastSerial.increment()
        return lastSerial.current
    }

    @inline(__always) var top: Entry { Entry(words: words + (depth &- 1) &* Field.count) }

    /// A span as the owner reads it.
    struct Entry {
        fileprivate let words: UnsafeMutablePointer<Atomic<UInt64>>
        @inline(__always) var startTicks: UInt64 { words[Field.start].load(ordering: .relaxed) }
        @inline(__always) var mark: UInt64 { words[Field.mark].load(ordering: .relaxed) }
        @inline(__always) var site: UInt64 { words[Field.site].load(ordering: .relaxed) }
        @inline(__always) var flow: UInt64 { words[Field.flow].load(ordering: .relaxed) }
        @inline(__always) var label: UnsafeMutablePointer<Atomic<UInt64>> { words + Field.label }
        @inline(__always) var hasLabel: Bool { label[0].load(ordering: .relaxed) != 0 }
    }

    // MARK: Any thread
    /// A span as another thread reads it.
    struct Span {
        let mark: SpanMark
        let label: String?
        let startTicks: UInt64, resumedTicks: UInt64, serial: UInt64
    }

    /// The spans in progress, outermost first. One that changed while it was read is left out, with all that it encloses.
    borrowing func snapshot() -> [Span] {
        var spans: [Span] = []
        for level in 0..<depthWord.load(ordering: .acquiring) {
            guard let span = span(at: level) else { break }
            spans.append(span)
        }
        return spans
    }

    /// Nil if there is none, or if it changed while it was read.
    borrowing func innermost() -> Span? {
        let depth = depthWord.load(ordering: .acquiring)
        return depth == 0 ? nil : span(at: depth - 1)
    }

    private borrowing func span(at level: Int) -> Span? {
        let entry = words + level * Field.count
        func word(_ field: Int) -> UInt64 { entry[field].load(ordering: .relaxed) }
        let serial = entry[Field.serial].load(ordering: .acquiring)
        if serial == 0 { return nil }
        let mark = SpanMark(word: word(Field.mark), site: word(Field.site), flow: word(Field.flow))
        let (start, resumed) = (word(Field.start), word(Field.resumed))
        let label = LabelWords.read(entry + Field.label)
        atomicMemoryFence(ordering: .acquiring)
        guard depthWord.load(ordering: .relaxed) > level, entry[Field.serial].load(ordering: .relaxed) == serial else { return nil }
        return Span(mark: mark, label: label, startTicks: start, resumedTicks: resumed, serial: serial)
    }
}
