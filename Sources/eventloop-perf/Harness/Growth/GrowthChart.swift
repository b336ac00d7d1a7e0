// Small charts of growth, one for each operation: its cost against the number of items, both on logarithmic scales, with a line for each
// contender. What grows more than logarithmically is said in words below the chart.

struct GrowthChart {
    private static let width = 340.0
    private static let height = 220.0
    private static let (left, right, top, bottom) = (52.0, 18.0, 10.0, 24.0)

    let result: GrowthResult
    private let sizes: LogScale
    private let costs: LogScale

    /// Nil if there is nothing to draw.
    init?(_ result: GrowthResult) {
        let points = result.contenders.flatMap(\.points)
        let (sizes, costs) = (LogScale(around: points.map { Double($0.size) }), LogScale(around: points.map(\.cost)))
        guard let sizes, let costs else { return nil }
        (self.result, self.sizes, self.costs) = (result, sizes, costs)
    }

    static func html(_ results: [GrowthResult]) -> String {
        "<div class=\"growth\">\n\(results.compactMap { GrowthChart($0)?.figure }.joined(separator: "\n"))\n</div>"
    }

    private var figure: String {
        let legend = result.contenders.map { curve in
            let isGrowing = curve.slope?.verdict == .growing
            let style = curve.name == Contender.ours && isGrowing ? " class=\"flag\"" : ""
            return "<li><i class=\"\(Self.style(of: curve.name))\"></i><span\(style)>\(Chart.escaped(curve.name)): "
                + "\(curve.slope?.words ?? "too few sizes")</span></li>"
        }
        return """
            <figure><figcaption><span class="name">growth.\(result.id)</span> \(Chart.escaped(result.title))</figcaption>
            \(svg)
            <ul>\(legend.joined())</ul></figure>
            """
    }

    /// The class of a contender's line.
    private static func style(of name: String) -> String {
        name == Contender.ours ? "ours" : ["libevent", "libuv"].contains(name) ? name : "peer"
    }

    private var svg: String {
        var parts: [String] = []
        for size in sizes.decades {
            parts.append(line((x(size), Self.top), (x(size), Self.height - Self.bottom)))
            parts.append(text(Self.short(size), x: x(size), y: Self.height - Self.bottom + 16, anchor: "middle"))
        }
        for cost in costs.decades {
            parts.append(line((Self.left, y(cost)), (Self.width - Self.right, y(cost))))
            parts.append(text(Self.time(cost), x: Self.left - 6, y: y(cost) + 4, anchor: "end"))
        }
        // Ours last, so that it is in front.
        for curve in result.contenders.reversed() {
            let style = Self.style(of: curve.name)
            let places = curve.points.map { "\(fixed(x(Double($0.size)))),\(fixed(y($0.cost)))" }
            parts.append("<polyline points=\"\(places.joined(separator: " "))\" class=\"\(style)\"/>")
            parts += curve.points.map {
                "<circle cx=\"\(fixed(x(Double($0.size))))\" cy=\"\(fixed(y($0.cost)))\" r=\"2.5\" class=\"\(style)\">"
                    + "<title>\(Chart.escaped(curve.name)), \(Format.grouped(Int64($0.size))): \(Format.number($0.cost)) ns</title></circle>"
            }
        }
        return "<svg viewBox=\"0 0 \(Int(Self.width)) \(Int(Self.height))\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\">"
            + parts.joined(separator: "\n") + "</svg>"
    }

    private func line(_ from: (Double, Double), _ to: (Double, Double)) -> String {
        "<line x1=\"\(fixed(from.0))\" y1=\"\(fixed(from.1))\" x2=\"\(fixed(to.0))\" y2=\"\(fixed(to.1))\" class=\"grid\"/>"
    }

    private func text(_ words: String, x: Double, y: Double, anchor: String) -> String {
        "<text x=\"\(fixed(x))\" y=\"\(fixed(y))\" text-anchor=\"\(anchor)\">\(words)</text>"
    }

    private func x(_ size: Double) -> Double { Self.left + sizes.place(size) * (Self.width - Self.left - Self.right) }
    private func y(_ cost: Double) -> Double { Self.top + (1 - costs.place(cost)) * (Self.height - Self.top - Self.bottom) }
    private func fixed(_ value: Double) -> String { String((value * 10).rounded() / 10) }

    /// 10, 1k, 10M.
    private static func short(_ size: Double) -> String {
        size < 1_000 ? "\(Int(size))" : size < 1_000_000 ? "\(Int(size / 1_000))k" : "\(Int(size / 1_000_000))M"
    }

    /// For a power of ten of nanoseconds.
    private static func time(_ nanoseconds: Double) -> String {
        if nanoseconds < 1 { return Format.fixed(nanoseconds, digits: nanoseconds < 0.05 ? 2 : 1) + " ns" }
        let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")]
        let unit = units.first { nanoseconds >= $0.0 * 0.999 } ?? (1, "ns")
        return "\(Int((nanoseconds / unit.0).rounded())) \(unit.1)"
    }
}
