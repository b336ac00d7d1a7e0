// Lifecycle of the counts of `LiveHistogram`: allocated with the first duration, freed with the histogram.

import EventLoopLibC
import Synchronization

extension RunLoop {
    /// Counts of durations in logarithmic classes; never more than 6.25 % off.
    ///
    /// A value: it does not change with the loop that it was read from.
    public struct Histogram: Sendable, Hashable {
        /// By class, without the empty classes at the end.
        private var counts: [UInt64] = []
        /// In nanoseconds.
        fileprivate var sum = 0.0
        fileprivate var largest: Int64 = 0
        /// An empty histogram.
        public init() {}
        /// How many durations it has. O(classes).
        public var count: UInt64 { counts.reduce(0, &+) }
        /// The longest one, exactly; zero when there is none.
        public var maximum: Duration { .nanoseconds(largest) }
        /// The arithmetic mean; zero when there is none.
        public var mean: Duration { counts.isEmpty ? .zero : .nanoseconds(Int64(clamping: sum / Double(count))) }

        /// `percentile(99)`: the duration that 99 of 100 do not exceed; zero if there is none. `percentile(100)` is `maximum`. Traps outside 0...100.
        public func percentile(_ percent: Double) -> Duration {
            precondition((0...100).contains(percent), "percentile takes a number from 0 to 100, not \(percent)")
            let total = Double(count)
            let rank = max(1, (percent / 100 * total).rounded(.up))
            // Not by its class: the middle of a class of ticks may be in another class of nanoseconds than the longest duration.
            if rank >= total { return maximum }
            var seen = 0.0
            for (index, count) in counts.enumerated() {
                seen += Double(count)
                if seen >= rank { return .nanoseconds(min(HistogramClass.last(in: index), largest)) }
            }
            return maximum
        }

        /// Both together, for several loops.
        public func merging(_ other: Histogram) -> Histogram {
            var merged = self
            for (index, count) in other.counts.enumerated() where count > 0 { merged.add(count, toClass: index) }
            merged.sum += other.sum
            merged.largest = max(largest, other.largest)
            return merged
        }

        /// The classes that have durations, shortest first: the longest duration of each class, and how many there are.
        public var classes: [(upTo: Duration, count: UInt64)] {
            counts.indices.filter { counts[$0] > 0 }.map { (.nanoseconds(HistogramClass.last(in: $0)), counts[$0]) }
        }

        /// Counts a duration. A negative one counts as zero.
        public mutating func record(_ duration: Duration) {
            let nanoseconds = max(0, duration.saturatedNanoseconds)
            add(1, toClass: HistogramClass.index(clamping: nanoseconds))
            sum += Double(nanoseconds)
            largest = max(largest, nanoseconds)
        }

        fileprivate mutating func add(_ count: UInt64, toClass index: Int) {
            if counts.count <= index { counts += Array(repeating: 0, count: index + 1 - counts.count) }
            counts[index] &+= count
        }
    }
}

/// The classes of a histogram: 32 for each octave, so that a class is at most 3.1 % of its durations wide. The class of a number is the exponent of
/// the next one as a `Double` (zero has none), and the first five bits of its fraction: four instructions.
enum HistogramClass {
    static let bits = 5
    static let inOctave = 1 << bits

    /// Of a number that is not greater than 2^62.
    @inline(__always) static func index(of value: UInt64) -> Int {
        let next = Double(Int64(truncatingIfNeeded: value) &+ 1)
        return Int(truncatingIfNeeded: next.bitPattern &>> UInt64(Double.significandBitCount - bits)) &- 1023 * inOctave
    }

    static func index(clamping value: Int64) -> Int { index(of: min(UInt64(max(0, value)), 1 << 62)) }

    /// The least number in a class: `index(of:)` the other way round.
    static func first(in index: Int) -> UInt64 {
        let next = Double(bitPattern: UInt64(index + 1023 * inOctave) << UInt64(Double.significandBitCount - bits))
        return UInt64(next.rounded(.up)) - 1
    }

    /// The greatest number in a class. The last class has all numbers from 2^62 on.
    static func last(in index: Int) -> Int64 { index < 62 * inOctave ? Int64(first(in: index + 1)) - 1 : .max }
}

/// The counts of a histogram that one thread raises and any thread reads. In the unit of the caller.
struct LiveHistogram: ~Copyable, @unchecked Sendable {
    // SAFETY: the owner alone allocates and writes, and publishes memory by an atomic store; everything in it is atomic.
    private let counts = Atomic<UnsafeMutablePointer<Counter>?>(nil)
    private let largest = Counter()
    /// Numbers from 2^45 on, hours, share the last class, and the longest stands for them.
    private static let classes = 45 * HistogramClass.inOctave + 1
    deinit { free(counts.load(ordering: .relaxed)) }

    /// Counts a number, which is not greater than 2^62. Owning thread only.
    @inline(__always) borrowing func record(_ value: UInt64) {
        let index = min(HistogramClass.index(of: value), Self.classes &- 1)
        let counts = counts.load(ordering: .relaxed) ?? makeCounts()
        counts[index].increment()
        if value > largest.current { largest.set(value) }
    }

    /// All at once: a class that is met for the first time after an hour must not cost an allocation in the middle of a pass.
    @inline(never) private borrowing func makeCounts() -> UnsafeMutablePointer<Counter> {
        // Zeros are what an initialized `Counter` has. Of the 12 KiB, only the pages of durations that occur are ever touched.
        let size = Self.classes * MemoryLayout<Counter>.stride
        guard let memory = calloc(size, 1) else {
            preconditionFailure("a run loop's statistics need \(size) bytes, and the system refuses them")
        }
        let made = memory.bindMemory(to: Counter.self, capacity: Self.classes)
        counts.store(made, ordering: .releasing)
        return made
    }

    /// What was counted so far. `sum` is that of all numbers. Any thread. The counts are read one after another.
    borrowing func histogram(nanosecondsPerUnit unit: Double, sum: UInt64) -> RunLoop.Histogram {
        var histogram = RunLoop.Histogram()
        guard let counts = counts.load(ordering: .acquiring) else { return histogram }
        let longest = Int64(clamping: Double(largest.current) * unit)
        for index in 0..<Self.classes - 1 where counts[index].current > 0 {
            // The middle of a class stands for its numbers: at most 1.6 % off.
            let middle = (Double(HistogramClass.first(in: index)) + Double(HistogramClass.last(in: index))) / 2
            histogram.add(counts[index].current, toClass: HistogramClass.index(clamping: Int64(clamping: middle * unit)))
        }
        let rest = counts[Self.classes - 1].current
        if rest > 0 { histogram.add(rest, toClass: HistogramClass.index(clamping: longest)) }
        (histogram.sum, histogram.largest) = (Double(sum) * unit, longest)
        return histogram
    }
}

extension Int64 {
    /// The nearest number below, or the nearest end of the range. Zero for a number that is none.
    init(clamping value: Double) { self = Int64(exactly: value.rounded(.down)) ?? (value > 0 ? .max : value < 0 ? .min : 0) }
}
