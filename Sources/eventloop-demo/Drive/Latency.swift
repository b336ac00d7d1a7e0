// The latency of answers, in constant space.
//
// It uses buckets instead of a sorted list. With `--seconds 3600` a list would have a hundred million elements, and sorting
// even one second of it would disturb the measurement. With 64 buckets an octave, a quantile is exact to 1 %; the minimum
// and the maximum are exact.

struct Latency {
    private static let perOctave = 64
    private var buckets = [UInt32](repeating: 0, count: 58 * Latency.perOctave + 64)
    private(set) var count: UInt64 = 0
    private var least = UInt64.max
    private var greatest: UInt64 = 0

    var min: UInt64 { count == 0 ? 0 : least }
    var max: UInt64 { greatest }
    var median: UInt64 { quantile(0.5) }
    var p99: UInt64 { quantile(0.99) }

    mutating func record(_ nanoseconds: UInt64) {
        buckets[Latency.bucket(of: nanoseconds)] += 1
        count += 1
        if nanoseconds < least { least = nanoseconds }
        if nanoseconds > greatest { greatest = nanoseconds }
    }

    mutating func reset() {
        for index in buckets.indices { buckets[index] = 0 }
        (count, least, greatest) = (0, .max, 0)
    }

    private func quantile(_ share: Double) -> UInt64 {
        guard count > 0 else { return 0 }
        let wanted = Swift.max(1, UInt64((Double(count) * share).rounded(.up)))
        var seen: UInt64 = 0
        for (index, entries) in buckets.enumerated() where entries > 0 {
            seen += UInt64(entries)
            if seen >= wanted {
                return Swift.min(greatest, Swift.max(least, Latency.middle(of: index)))
            }
        }
        return greatest
    }

    /// The seven leading bits, and the shift. 0…127 represent themselves.
    private static func bucket(of value: UInt64) -> Int {
        let shift = Swift.max(0, 57 - value.leadingZeroBitCount)
        return shift * perOctave + Int(value >> UInt64(shift))
    }

    private static func middle(of index: Int) -> UInt64 {
        let shift = Swift.max(0, index / perOctave - 1)
        let lower = UInt64(index - shift * perOctave) << UInt64(shift)
        return lower + (UInt64(1) << UInt64(shift)) / 2
    }
}
