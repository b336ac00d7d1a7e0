// A page that shows at a glance who is faster. It has no scripts, and loads nothing.
//
// The first chart has the goals: for each, the result relative to the goal. The second has all figures, each relative to one peer of the
// case (nearly always raw libevent). Both scales are logarithmic: a distance to the left of the line is as many times better as the same
// distance to the right is worse.

enum Chart {
    private static let labels = 500.0
    private static let plot = 430.0
    private static let notes = 250.0
    private static let width = labels + plot + notes

    static func page(of results: [CaseResult]) -> String {
        let goals = goalChart(results)
        let figures = figureChart(results)
        return """
            <!DOCTYPE html>
            <html lang="en"><head><meta charset="utf-8"><title>EventLoop: performance</title>
            <style>
            body { font: 14px/1.5 system-ui, sans-serif; color: #1c2330; background: #fff; margin: 2em auto; max-width: \(Int(width))px; }
            h1 { font-size: 22px; } h2 { font-size: 17px; margin-top: 2em; } svg { max-width: 100%; height: auto; }
            svg text { font: 12px system-ui, sans-serif; fill: #1c2330; } svg .dim { fill: #6b7280; paint-order: stroke; stroke: #fff; stroke-width: 4px; } svg .name { font-weight: 600; }
            svg .ours { fill: #c2410c; } svg .peer { fill: #a9b4c4; } svg .met { fill: #15803d; } svg .missed { fill: #b91c1c; }
            svg .grid { stroke: #e5e7eb; } svg .one { stroke: #6b7280; } svg .goal { stroke: #1c2330; stroke-width: 2; }
            </style></head><body>
            <h1>EventLoop: performance</h1>
            <p>\(escaped(Machine.name)). Medians of interleaved rounds. Made by <code>eventloop-perf</code>; what each case does is in
            <code>docs/performance.md</code>.</p>
            <h2>The goals</h2>
            <p>Each bar is the ratio to the goal's peer, divided by the ratio that is wanted: green, to the left of the line, is reached;
            red is how far it is missed.</p>
            \(goals)
            <h2>The figures</h2>
            <p>Each bar is a figure in relation to the line, which is the peer named after it: to the left is less, and better. Orange is
            this library. A black mark is a goal: the orange bar should end at it or to the left of it.</p>
            \(figures)
            </body></html>

            """
    }

    // MARK: Goals

    private static func goalChart(_ results: [CaseResult]) -> String {
        var canvas = Canvas(scale: LogScale(from: 0.1, to: 10, left: labels, width: plot), width: width)
        for result in results {
            for goal in result.measured.goals {
                guard let judgement = result.judge(goal) else { continue }
                let reached = judgement.ratio / goal.ratio
                canvas.label(result.measured.id, title: result.measured.title)
                canvas.bar(reached, style: judgement.verdict.rawValue)
                canvas.note("\(Format.ratio(judgement.ratio)) of \(judgement.peer), goal \(Format.ratio(goal.ratio))")
                canvas.nextLine()
            }
        }
        return canvas.svg(axis: ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
    }

    // MARK: Figures

    private static func figureChart(_ results: [CaseResult]) -> String {
        var canvas = Canvas(scale: LogScale(from: 0.01, to: 100, left: labels, width: plot), width: width)
        for result in results {
            guard let (base, reference) = base(of: result) else { continue }
            canvas.heading(result.measured.id, "\(result.measured.title); the line is \(base)")
            for (name, figures) in result.contenders {
                guard let spread = Spread(figures) else { continue }
                canvas.contender(name)
                canvas.bar(spread.median / reference, style: name == Contender.ours ? "ours" : "peer")
                if name == Contender.ours {
                    for goal in result.measured.goals {
                        guard let judgement = result.judge(goal), let peer = result.spread(judgement.peer) else { continue }
                        canvas.mark(goal.ratio * peer.median / reference)
                    }
                }
                canvas.note("\(Format.number(spread.median)) \(result.measured.metric.unit) ±\(Report.percent(spread.noise))")
                canvas.nextLine()
            }
            canvas.gap()
        }
        return canvas.svg(axis: ["0.01", "0.1", "1", "10", "100"])
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
