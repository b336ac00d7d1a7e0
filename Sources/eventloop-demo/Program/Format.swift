// Numbers and text for a terminal of 80 columns. Every character the demo prints is one column wide.

enum Format {
    /// 1234567 → "1,234,567".
    static func grouped(_ value: UInt64) -> String {
        let digits = String(value)
        var result = ""
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.count - index).isMultiple(of: 3) { result.append(",") }
            result.append(digit)
        }
        return result
    }

    /// Like `grouped` up to 999,999, then "1.23M": at most 7 columns.
    static func compact(_ value: UInt64) -> String {
        switch value {
        case ..<1_000_000: grouped(value)
        case ..<1_000_000_000: threeDigits(Double(value) / 1e6) + "M"
        default: threeDigits(Double(value) / 1e9) + "G"
        }
    }

    /// Three significant digits and a unit: "812 ns", "61.4 µs", "1.20 s".
    static func duration(nanoseconds: UInt64) -> String {
        switch nanoseconds {
        case ..<1_000: "\(nanoseconds) ns"
        case ..<999_500: threeDigits(Double(nanoseconds) / 1e3) + " µs"
        case ..<999_500_000: threeDigits(Double(nanoseconds) / 1e6) + " ms"
        default: threeDigits(Double(nanoseconds) / 1e9) + " s"
        }
    }

    static func duration(_ duration: Duration) -> String {
        self.duration(nanoseconds: nanoseconds(of: duration))
    }

    /// Microseconds with one decimal: "1,234.5 µs". For columns that a reader compares.
    static func microseconds(_ nanoseconds: UInt64) -> String {
        let tenths = (nanoseconds + 50) / 100
        return "\(grouped(tenths / 10)).\(tenths % 10) µs"
    }

    /// Zero for negative durations.
    static func nanoseconds(of duration: Duration) -> UInt64 {
        let (seconds, attoseconds) = duration.components
        return UInt64(max(0, seconds * 1_000_000_000 + attoseconds / 1_000_000_000))
    }

    static func right(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }

    static func left(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }

    static func count(_ value: Int, _ singular: String, plural: String? = nil) -> String {
        value == 1 ? "1 \(singular)" : "\(grouped(UInt64(value))) \(plural ?? singular + "s")"
    }

    private static func threeDigits(_ value: Double) -> String {
        let digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0
        let scale = [1.0, 10.0, 100.0][digits]
        let scaled = UInt64((value * scale).rounded())
        guard digits > 0 else { return grouped(scaled) }
        let unit = UInt64(scale)
        let fraction = String(scaled % unit)
        return "\(scaled / unit)." + String(repeating: "0", count: digits - fraction.count) + fraction
    }
}
