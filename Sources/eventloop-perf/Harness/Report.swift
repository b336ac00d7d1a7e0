// The table on the terminal.

enum Report {
    /// Explains how to read the table.
    static let head = """
        Nanoseconds an operation unless it says otherwise, median of interleaved rounds; ± is half the distance between the quartiles.
        The figure in brackets is ours divided by the peer's: below 1 we are faster.
        """

    static func lines(for result: CaseResult) -> [String] {
        let ours = result.ours.map { "\(Format.number($0.median)) \(result.measured.metric.unit) ±\(percent($0.noise))" } ?? "–"
        var lines = ["\(Format.left(result.measured.id, 24)) \(Format.left(result.measured.title, 62)) \(Format.right(ours, 18))"]
        for (name, figures) in result.contenders where name != Contender.ours {
            guard let spread = Spread(figures) else { continue }
            let ratio = result.ratio(to: name).map { "[\(Format.ratio($0))]" } ?? ""
            lines.append(
                "    \(Format.left(name, 24)) \(Format.right(Format.number(spread.median), 12)) "
                    + "\(Format.right("±" + percent(spread.noise), 6))  \(Format.left(ratio, 8)) \(goal(about: name, in: result))")
        }
        for goal in result.measured.goals where result.judge(goal) == nil {
            lines.append("    goal ≤ \(Format.ratio(goal.ratio)) of \(goal.peers.joined(separator: ", ")), not measured here")
        }
        return lines
    }

    static func percent(_ part: Double) -> String { "\(Int((part * 100).rounded()))%" }

    private static func goal(about peer: String, in result: CaseResult) -> String {
        result.measured.goals.compactMap { goal -> String? in
            guard let judgement = result.judge(goal), judgement.peer == peer else { return nil }
            return "goal ≤ \(Format.ratio(goal.ratio)): \(judgement.verdict.rawValue)"
        }.joined(separator: ", ")
    }

    static func summary(of results: [CaseResult]) -> [String] {
        let verdicts = results.flatMap { result in result.measured.goals.map { result.judge($0)?.verdict ?? .unknown } }
        func count(_ verdict: CaseResult.Verdict) -> Int { verdicts.count { $0 == verdict } }
        return ["\(count(.met)) goals met, \(count(.missed)) missed, \(count(.unknown)) not measured."]
    }
}
