// A page that shows at a glance who is faster. It has no scripts, and loads nothing.
//
// The first chart has the goals: for each, the result relative to the goal. The second has all figures, each relative to one peer of the
// case (nearly always raw libevent). Both scales are logarithmic: a distance to the left of the line is as many times better as the same
// distance to the right is worse. The small charts have growth.

enum Chart {
    private static let style = """
        * { box-sizing: border-box; }
        body { font: 14px/1.5 system-ui, sans-serif; color: #1c2330; background: #fff; margin: 0 auto; padding: 1.5em 24px; max-width: 1360px; }
        h1 { font-size: 22px; } h2 { font-size: 17px; margin-top: 2em; } p { max-width: 62em; }
        .dim, .axis { color: #6b7280; } .name { font-weight: 600; } .flag { font-weight: 600; color: #b91c1c; }
        .bars { font-size: 12px; line-height: 18px; }
        .bars > div { display: grid; grid-template-columns: minmax(200px, 1.2fr) minmax(200px, 1fr) 205px; column-gap: 12px; }
        .heading { padding-top: 8px; } .heading .label, .goal .label { overflow-wrap: anywhere; }
        .figure .label { text-align: right; } .axis .plot { grid-column: 2; height: 18px; } .plot { position: relative; min-height: 18px; }
        .axis span { position: absolute; transform: translateX(-50%); }
        .plot i { position: absolute; top: 3px; height: 12px; min-width: 2px; }
        .plot u { position: absolute; top: 0; bottom: 0; width: 1px; background: #e5e7eb; } .plot u.one { background: #6b7280; }
        .plot b { position: absolute; top: 0; height: 18px; width: 2px; margin-left: -1px; background: #1c2330; }
        .beyond.more { clip-path: polygon(0 0, calc(100% - 7px) 0, 100% 50%, calc(100% - 7px) 100%, 0 100%); }
        .beyond.less { clip-path: polygon(7px 0, 100% 0, 100% 100%, 7px 100%, 0 50%); }
        i.ours { background: #c2410c; } i.peer, i.libevent { background: #a9b4c4; } i.libuv { background: #2563eb; }
        i.met { background: #15803d; } i.missed { background: #b91c1c; }
        .growth { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 24px; }
        figure { margin: 0; } figcaption, .growth ul { font-size: 12px; } svg { width: 100%; height: auto; }
        .growth ul { list-style: none; margin: 0; padding: 0 0 0 8px; }
        .growth li i { display: inline-block; width: 14px; height: 3px; margin-right: 6px; vertical-align: middle; }
        svg text { font: 11px system-ui, sans-serif; fill: #6b7280; } svg .grid { stroke: #e5e7eb; }
        polyline { fill: none; stroke-width: 1.8; stroke: #a9b4c4; } circle { fill: #a9b4c4; }
        polyline.ours { stroke: #c2410c; } circle.ours { fill: #c2410c; } polyline.libuv { stroke: #2563eb; } circle.libuv { fill: #2563eb; }
        @media (max-width: 700px) { .bars > div { grid-template-columns: 1fr; } .axis .plot { grid-column: 1; } .figure .label { text-align: left; } }
        """

    static func page(of results: [CaseResult], _ growths: [GrowthResult]) -> String {
        """
        <!DOCTYPE html>
        <html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>EventLoop: performance</title>
        <style>
        \(style)
        </style></head><body>
        <h1>EventLoop: performance</h1>
        <p>\(escaped(Machine.name)). Medians of interleaved rounds. Made by <code>eventloop-perf</code>; what each case does is in
        <code>docs/performance.md</code>.</p>
        \(results.isEmpty ? "" : bars(of: results))
        \(growths.isEmpty ? "" : growthPart(growths))
        </body></html>

        """
    }

    private static func bars(of results: [CaseResult]) -> String {
        """
        <h2>The goals</h2>
        <p>Each bar is the ratio to the goal's peer, divided by the ratio that is wanted: green, to the left of the line, is reached;
        red is how far it is missed.</p>
        \(goalChart(results))
        <h2>The figures</h2>
        <p>Each bar is a figure in relation to the line, which is the peer named after it: to the left is less, and better. Orange is
        this library. A black mark is a goal: the orange bar should end at it or to the left of it.</p>
        \(figureChart(results))
        """
    }

    private static func growthPart(_ growths: [GrowthResult]) -> String {
        """
        <h2>Growth</h2>
        <p>What an operation costs (upwards) beside so many items (to the right), both on logarithmic scales: a cost that does not depend on
        the number is level, and one that is proportional to it rises by one square in a square. The words below a chart are about the last
        three powers of ten. Orange is this library.</p>
        <ul>\(GrowthReport.summary(of: growths).map { "<li>\(escaped($0))</li>" }.joined())</ul>
        \(GrowthChart.html(growths))
        """
    }

    // MARK: Goals

    private static func goalChart(_ results: [CaseResult]) -> String {
        var bars = Bars(scale: LogScale(from: 0.1, to: 10), axis: ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
        for result in results {
            for goal in result.measured.goals {
                guard let judgement = result.judge(goal) else { continue }
                bars.bar(
                    result.measured.id, result.measured.title, ratio: judgement.ratio / goal.ratio, style: judgement.verdict.rawValue,
                    note: "\(Format.ratio(judgement.ratio)) of \(judgement.peer), goal \(Format.ratio(goal.ratio))")
            }
        }
        return bars.html
    }

    // MARK: Figures

    private static func figureChart(_ results: [CaseResult]) -> String {
        var bars = Bars(scale: LogScale(from: 0.01, to: 100), axis: ["0.01", "0.1", "1", "10", "100"])
        for result in results {
            guard let (base, reference) = base(of: result) else { continue }
            bars.heading(result.measured.id, "\(result.measured.title); the line is \(base)")
            for (name, figures) in result.contenders {
                guard let spread = Spread(figures) else { continue }
                let isOurs = name == Contender.ours
                let marks = result.measured.goals.compactMap { goal -> Double? in
                    guard isOurs, let judgement = result.judge(goal), let peer = result.spread(judgement.peer) else { return nil }
                    return goal.ratio * peer.median / reference
                }
                bars.bar(
                    name, ratio: spread.median / reference, style: isOurs ? "ours" : "peer", marks: marks,
                    note: "\(Format.number(spread.median)) \(result.measured.metric.unit) ±\(Report.percent(spread.noise))")
            }
        }
        return bars.html
    }

    /// The peer with which the others are compared: raw libevent; otherwise the peer of a goal; otherwise any peer.
    private static func base(of result: CaseResult) -> (name: String, median: Double)? {
        let names = ["libevent"] + result.measured.goals.flatMap(\.peers) + result.contenders.map(\.name).filter { $0 != Contender.ours }
        for name in names {
            if let spread = result.spread(name), spread.median > 0 { return (name, spread.median) }
        }
        return nil
    }

    static func escaped(_ text: String) -> String {
        text.map { $0 == "&" ? "&amp;" : $0 == "<" ? "&lt;" : $0 == ">" ? "&gt;" : String($0) }.joined()
    }
}
