// Numbers for people: no locale, no Foundation.

enum Format {
    /// Three significant digits, or all digits before the point: "0.00", "9.71", "43.2", "1,907".
    static func number(_ value: Double) -> String {
        guard value.isFinite else { return "–" }
        let size = abs(value)
        return fixed(value, digits: size < 9.995 ? 2 : size < 99.95 ? 1 : 0)
    }

    /// Like `number`, but with two digits for values below a hundredth: "0.0034".
    static func ratio(_ value: Double) -> String {
        value > 0 && value < 0.00995 ? fixed(value, digits: value < 0.000_995 ? 5 : 4) : number(value)
    }

    static func fixed(_ value: Double, digits: Int) -> String {
        let scale = [1.0, 10, 100, 1_000, 10_000, 100_000][digits]
        let scaled = Int64((abs(value) * scale).rounded())
        let sign = value < 0 && scaled != 0 ? "-" : ""
        let whole = sign + grouped(scaled / Int64(scale))
        guard digits > 0 else { return whole }
        let fraction = String(scaled % Int64(scale))
        return whole + "." + String(repeating: "0", count: digits - fraction.count) + fraction
    }

    /// 1234567 → "1,234,567".
    static func grouped(_ value: Int64) -> String {
        let digits = Array(String(value))
        var result = ""
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.count - index).isMultiple(of: 3) { result.append(",") }
            result.append(digit)
        }
        return result
    }

    static func right(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }

    static func left(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }
}
