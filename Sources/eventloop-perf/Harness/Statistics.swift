// Statistics of rounds. Pure, and tested.

struct Spread: Sendable, Equatable {
    let median: Double
    let lowerQuartile: Double
    let upperQuartile: Double
    let minimum: Double
    let maximum: Double

    /// Nil if there are no figures.
    init?(_ figures: [Double]) {
        let sorted = figures.filter(\.isFinite).sorted()
        guard let first = sorted.first, let last = sorted.last else { return nil }
        (minimum, maximum) = (first, last)
        median = Self.quantile(0.5, of: sorted)
        lowerQuartile = Self.quantile(0.25, of: sorted)
        upperQuartile = Self.quantile(0.75, of: sorted)
    }

    /// Half the distance between the quartiles, relative to the median: with 0.05, half of the rounds are within about 5 % of it.
    var noise: Double { median == 0 ? 0 : (upperQuartile - lowerQuartile) / 2 / abs(median) }

    /// Interpolates linearly between two figures.
    private static func quantile(_ part: Double, of sorted: [Double]) -> Double {
        let place = part * Double(sorted.count - 1)
        let below = Int(place)
        let above = min(below + 1, sorted.count - 1)
        return sorted[below] + (sorted[above] - sorted[below]) * (place - Double(below))
    }
}
