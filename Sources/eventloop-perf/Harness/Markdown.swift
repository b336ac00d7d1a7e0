// The table for docs/performance.md.

enum Markdown {
    static func text(of results: [CaseResult]) -> String {
        var lines = ["On \(Machine.name).", ""]
        for workload in workloads(of: results) {
            lines += ["| \(workload) | here | others (here : there) | goal | |", "|---|---|---|---|---|"]
            lines += results.filter { $0.measured.workload == workload }.map(row)
            lines.append("")
        }
        return lines.joined(separator: "\n")
    }

    static func workloads(of results: [CaseResult]) -> [String] {
        results.map(\.measured.workload).reduce(into: []) { if !$0.contains($1) { $0.append($1) } }
    }

    private static func row(_ result: CaseResult) -> String {
        let unit = result.measured.metric.unit
        let ours = result.ours.map { "\(Format.number($0.median)) \(unit) ±\(Report.percent($0.noise))" } ?? "–"
        let others = result.contenders.filter { $0.name != Contender.ours }.map { name, figures in
            "\(name) \(Spread(figures).map { Format.number($0.median) } ?? "–") (\(result.ratio(to: name).map(Format.ratio) ?? "–"))"
        }
        let goals = result.measured.goals.map { "≤ \(Format.ratio($0.ratio)) of \($0.peers.joined(separator: ", "))" }
        let verdicts = result.measured.goals.map { goal in
            result.judge(goal).map { "\($0.verdict.rawValue) (\(Format.ratio($0.ratio)))" } ?? "not measured"
        }
        let name = "`\(result.measured.id)` \(result.measured.title)"
        return "| \(name) | \(ours) | \(others.joined(separator: ", ")) | \(goals.joined(separator: "<br>")) "
            + "| \(verdicts.joined(separator: "<br>")) |"
    }
}
