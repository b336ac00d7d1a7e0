// Lines of a bar chart as SVG.

import Glibc

/// Places ratios on a logarithmic axis.
struct LogScale {
    let from, to, left, width: Double

    func x(_ ratio: Double) -> Double {
        let part = log(min(max(ratio, from), to) / from) / log(to / from)
        return left + part * width
    }

    func contains(_ ratio: Double) -> Bool { ratio >= from && ratio <= to }
}

struct Canvas {
    private static let lineHeight = 18.0
    private static let top = 24.0

    let scale: LogScale
    let width: Double
    private var y = top
    private var elements: [String] = []

    init(scale: LogScale, width: Double) { (self.scale, self.width) = (scale, width) }

    private mutating func text(_ text: String, x: Double, style: String = "", anchor: String = "start") {
        elements.append(
            "<text x=\"\(round(x))\" y=\"\(round(y + 13))\" class=\"\(style)\" text-anchor=\"\(anchor)\">\(Chart.escaped(text))</text>")
    }

    mutating func label(_ name: String, title: String) {
        text(name, x: 0, style: "name")
        // The name has its own column. Text that does not fit beside it is complete in the other chart.
        let room = 40
        text(title.count > room ? String(title.prefix(room - 1)) + "…" : title, x: 200, style: "dim")
    }

    mutating func heading(_ name: String, _ title: String) {
        text(name, x: 0, style: "name")
        text(title, x: 200, style: "dim")
        // A bar must not cross the text.
        nextLine()
    }

    mutating func contender(_ name: String) {
        text(name, x: scale.left - 10, style: name == Contender.ours ? "name" : "", anchor: "end")
    }

    mutating func bar(_ ratio: Double, style: String) {
        let (one, end) = (scale.x(1), scale.x(ratio))
        // A value on the line must still be visible.
        let length = max(abs(end - one), 2)
        elements.append(
            "<rect x=\"\(fixed(min(one, end)))\" y=\"\(fixed(y + 3))\" width=\"\(fixed(length))\" height=\"12\" class=\"\(style)\"/>")
        guard !scale.contains(ratio) else { return }
        // The bar extends beyond the scale.
        let tip = ratio > 1 ? end + 7 : end - 7
        elements.append(
            "<polygon points=\"\(fixed(end)),\(fixed(y + 3)) \(fixed(end)),\(fixed(y + 15)) \(fixed(tip)),\(fixed(y + 9))\" class=\"\(style)\"/>"
        )
    }

    mutating func mark(_ ratio: Double) {
        let x = fixed(scale.x(ratio))
        elements.append("<line x1=\"\(x)\" y1=\"\(fixed(y))\" x2=\"\(x)\" y2=\"\(fixed(y + 18))\" class=\"goal\"/>")
    }

    mutating func note(_ words: String) { text(words, x: scale.left + scale.width + 14) }
    mutating func nextLine() { y += Self.lineHeight }
    mutating func gap() { y += 8 }

    /// - Parameter axis: the ratios labelled above the chart.
    func svg(axis: [String]) -> String {
        let height = y + 6
        let grid = axis.map { name -> String in
            let x = fixed(scale.x(Double(name) ?? 1))
            let style = name == "1" ? "one" : "grid"
            return "<text x=\"\(x)\" y=\"12\" class=\"dim\" text-anchor=\"middle\">\(name == "1" ? "1" : "×" + name)</text>"
                + "<line x1=\"\(x)\" y1=\"18\" x2=\"\(x)\" y2=\"\(fixed(height))\" class=\"\(style)\"/>"
        }
        return "<svg viewBox=\"0 0 \(Int(width)) \(Int(height))\" width=\"\(Int(width))\" height=\"\(Int(height))\" "
            + "xmlns=\"http://www.w3.org/2000/svg\">\n" + (grid + elements).joined(separator: "\n") + "\n</svg>"
    }

    private func fixed(_ value: Double) -> String { String((value * 10).rounded() / 10) }
}
