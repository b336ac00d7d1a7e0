// Places values on a logarithmic axis.

import Glibc

struct LogScale: Equatable {
    let from, to: Double

    /// Between 0 and 1; a value beyond the scale is at its end.
    func place(_ value: Double) -> Double { log(min(max(value, from), to) / from) / log(to / from) }

    func contains(_ value: Double) -> Bool { value >= from && value <= to }

    /// The powers of ten on the scale.
    var decades: [Double] {
        let (first, last) = (Int((log10(from) - 1e-9).rounded(.up)), Int((log10(to) + 1e-9).rounded(.down)))
        return first > last ? [] : (first...last).map { pow(10, Double($0)) }
    }

    /// The smallest scale from one power of ten to another that has all values; nil if there is none that is positive.
    init?(around values: [Double]) {
        let usable = values.filter { $0 > 0 && $0.isFinite }
        guard let least = usable.min(), let most = usable.max() else { return nil }
        let exponent = log10(least).rounded(.down)
        from = pow(10, exponent)
        to = pow(10, max(exponent + 1, log10(most).rounded(.up)))
    }

    init(from: Double, to: Double) { (self.from, self.to) = (from, to) }
}
