// Rows of a bar chart: a label, a bar on a logarithmic scale, a note. Each row is HTML, so a long label has as much room as the window
// gives it, and breaks where that is too little.

struct Bars {
    let scale: LogScale
    private let axis: [String]
    private var rows: [String] = []

    /// - Parameter axis: the ratios that the chart names, as their names.
    init(scale: LogScale, axis: [String]) {
        (self.scale, self.axis) = (scale, axis)
        let names = axis.map { name in
            "<span style=\"left:\(percent(place(Double(name) ?? 1)))\">\(name == "1" ? "1" : "×" + name)</span>"
        }
        rows.append("<div class=\"axis\"><div class=\"plot\">\(names.joined())</div></div>")
    }

    /// A row that is only words.
    mutating func heading(_ name: String, _ title: String) {
        rows.append("<div class=\"heading\">\(label(name, title))\(plot(""))</div>")
    }

    /// - Parameter style: of the bar: `met`, `missed`, `ours` or `peer`.
    /// - Parameter marks: ratios that the bar should not exceed.
    mutating func bar(_ name: String, _ title: String = "", ratio: Double, style: String, marks: [Double] = [], note: String) {
        let (one, end) = (place(1), place(ratio))
        let side = ratio < 1 ? "less" : "more"
        let beyond = scale.contains(ratio) ? "" : " beyond"
        let bar =
            "<i class=\"\(style) \(side)\(beyond)\" style=\"left:\(percent(min(one, end)));width:\(percent(abs(end - one)))\"></i>"
        let goals = marks.map { "<b style=\"left:\(percent(place($0)))\"></b>" }.joined()
        let kind = title.isEmpty ? "figure" : "goal"
        rows.append(
            "<div class=\"\(kind)\">\(label(name, title))\(plot(bar + goals))<div class=\"note\">\(Chart.escaped(note))</div></div>")
    }

    var html: String { "<div class=\"bars\">\n\(rows.joined(separator: "\n"))\n</div>" }

    private func label(_ name: String, _ title: String) -> String {
        let style = name == Contender.ours || !title.isEmpty ? " class=\"name\"" : ""
        return "<div class=\"label\"><span\(style)>\(Chart.escaped(name))</span> <span class=\"dim\">\(Chart.escaped(title))</span></div>"
    }

    private func plot(_ bars: String) -> String {
        let lines = axis.map { name in
            "<u\(name == "1" ? " class=\"one\"" : "") style=\"left:\(percent(place(Double(name) ?? 1)))\"></u>"
        }
        return "<div class=\"plot\">\(lines.joined())\(bars)</div>"
    }

    private func place(_ ratio: Double) -> Double { scale.place(ratio) }

    private func percent(_ part: Double) -> String { "\((part * 10_000).rounded() / 100)%" }
}
