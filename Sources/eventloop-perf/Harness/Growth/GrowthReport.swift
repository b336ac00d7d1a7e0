// Growth on the terminal.

enum GrowthReport {
    static let head = """
        Growth: nanoseconds for an operation beside the fewest items, and beside the most; and how it grows over the last three powers of ten.
        """

    static func lines(for result: GrowthResult) -> [String] {
        ["\(Format.left("growth." + result.id, 24)) \(result.title)"]
            + result.contenders.map { curve in
                let ends = [curve.points.first, curve.points.last].compactMap { $0 }.map {
                    "\(Format.right(Format.number($0.cost), 12)) at \(Format.left(Format.grouped(Int64($0.size)), 11))"
                }
                return "    \(Format.left(curve.name, 12)) \(ends.joined()) \(curve.slope?.words ?? "too few sizes")"
            }
    }

    static func summary(of results: [GrowthResult]) -> [String] {
        let growing = results.filter { result in result.growing.contains { $0.name == Contender.ours } }
        if growing.isEmpty { return ["No cost of \(Contender.ours) grows more than logarithmically."] }
        return growing.map { result in
            let peers = result.growing.map(\.name).filter { $0 != Contender.ours }
            let also = peers.isEmpty ? "" : "; so is that of \(peers.joined(separator: " and "))"
            return "GROWS: \(result.title) (growth.\(result.id)) is neither flat nor logarithmic\(also)."
        }
    }
}
