// How a cost grows with its size. Pure, and tested.
//
// The exponent is the slope in the log-log plane over the last three powers of ten: 0 is flat, 1 is linear. It is the median of the slopes
// between any two sizes that are at least a factor of three apart, so a single bad measurement does not move it.

import Glibc

struct Slope: Equatable {
    enum Verdict: String {
        /// Less than half as much again over the range, or falling.
        case flat
        /// As a logarithm of the size, or half as much again.
        case logarithmic
        /// More, but no more than leaving the caches explains.
        case caches = "logarithmic and caches"
        case growing
    }

    let exponent: Double
    let verdict: Verdict

    /// The range of sizes that counts: from a thousandth of the largest.
    static let range = 1_000.0
    static let shortestRange = 100.0
    static let flat = 1.5
    /// What leaving the caches may cost, beside the logarithm: a factor of four; or, for an exponent below a half, twenty accesses to memory
    /// that were accesses to a first-level cache at the small size. A heap of ten million has as many levels.
    static let caches = 4.0
    static let memory = 2_000.0

    /// Nil for fewer than three sizes, and for less than two powers of ten.
    init?(_ points: [(size: Int, cost: Double)]) {
        let usable = points.filter { $0.cost > 0 && $0.cost.isFinite && $0.size > 1 }.sorted { $0.size < $1.size }
        guard let last = usable.last else { return nil }
        let inRange = usable.filter { Double($0.size) * Self.range >= Double(last.size) }
        guard inRange.count > 2, let first = inRange.first, Double(last.size) >= Self.shortestRange * Double(first.size) else { return nil }
        var slopes: [Double] = []
        for (index, small) in inRange.enumerated() {
            for large in inRange[(index + 1)...] where large.size >= 3 * small.size {
                slopes.append(log(large.cost / small.cost) / log(Double(large.size) / Double(small.size)))
            }
        }
        guard let median = Spread(slopes)?.median else { return nil }
        exponent = median
        let (from, to) = (Double(first.size), Double(last.size))
        let growth = pow(to / from, median)
        let logarithm = log(to) / log(from)
        let middle = Spread(inRange.map { $0.cost / pow(Double($0.size) / from, median) })?.median ?? first.cost
        // A curve that leaves the caches and then levels off ends below its slope, and a bad figure above it.
        let rise = min(middle * growth, inRange.map(\.cost).max() ?? 0) - middle * logarithm
        let isExplained = growth <= Self.caches * logarithm || median < 0.5 && rise <= Self.memory
        verdict = growth <= Self.flat ? .flat : growth <= Self.flat * logarithm ? .logarithmic : isExplained ? .caches : .growing
    }

    /// "flat (n^0.02)", "logarithmic (n^0.21)", "n^0.98: neither flat nor logarithmic".
    var words: String {
        let power = "n^" + Format.fixed(exponent, digits: 2)
        return switch verdict {
        case .flat: "\(exponent < -0.1 ? "falling" : "flat") (\(power))"
        case .logarithmic: "logarithmic (\(power))"
        case .caches: "logarithmic, and out of the caches (\(power))"
        case .growing: "\(power): neither flat nor logarithmic"
        }
    }
}
