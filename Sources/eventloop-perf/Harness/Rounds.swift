// Interleaved rounds: all contenders share the machine's good and bad moments.

import CPerfPeers

/// The results of all rounds of one case.
struct CaseResult: Sendable {
    let measured: Case
    /// In the order of the case's contenders.
    let contenders: [(name: String, figures: [Double])]

    func spread(_ name: String) -> Spread? { contenders.first { $0.name == name }.flatMap { Spread($0.figures) } }
    var ours: Spread? { spread(Contender.ours) }

    /// The ratio of our median to a peer's. Below 1 we are faster.
    func ratio(to peer: String) -> Double? {
        guard let ours, let other = spread(peer), other.median > 0 else { return nil }
        return ours.median / other.median
    }

    enum Verdict: String, Sendable { case met, missed, unknown }

    /// The best of the goal's peers that took part, our ratio to it, and whether the goal is met.
    func judge(_ goal: Goal) -> (peer: String, ratio: Double, verdict: Verdict)? {
        let ratios = goal.peers.compactMap { peer in ratio(to: peer).map { (peer, $0) } }
        guard let worst = ratios.max(by: { $0.1 < $1.1 }) else { return nil }
        return (worst.0, worst.1, worst.1 <= goal.ratio ? .met : .missed)
    }
}

struct Rounds {
    let count: Int
    /// The intended duration of one run of one contender.
    let nanosecondsPerRun: Double
    let isQuick: Bool
    let progress: (String) -> Void

    func run(_ measured: Case) -> CaseResult {
        let amounts = measured.contenders.map { contender -> Int in
            progress("\(measured.id): trying \(contender.name)")
            return amount(for: contender, in: measured)
        }
        var figures = measured.contenders.map { _ in [Double]() }
        for round in 1...count {
            for index in measured.contenders.indices.shuffled() {
                let contender = measured.contenders[index]
                progress("\(measured.id): round \(round) of \(count), \(contender.name)")
                figures[index].append(contender.measure(amounts[index]).figure(measured.metric))
            }
        }
        return CaseResult(measured: measured, contenders: zip(measured.contenders, figures).map { ($0.name, $1) })
    }

    /// A first short run determines how many operations fit into the time; it also warms up code and caches.
    private func amount(for contender: Contender, in measured: Case) -> Int {
        switch measured.amount {
        case .fixed(let full, let quick): return min(isQuick ? quick : full, contender.maximum)
        case .upTo(let limit):
            let most = min(limit, contender.maximum)
            let first = operations(filling: nanosecondsPerRun, tried: min(1_000, most), by: contender, most: most)
            // Starting threads takes time that a thousand operations do not hide.
            let second = min(20_000, most)
            return first > 2 * second ? first : operations(filling: nanosecondsPerRun, tried: min(second, first), by: contender, most: most)
        }
    }

    /// How many operations take `time`, estimated from a run of `trial` operations.
    private func operations(filling time: Double, tried trial: Int, by contender: Contender, most: Int) -> Int {
        let started = perf_wall_ns()
        let figure = contender.measure(trial).figure(.wall)
        // If setup takes most of the time, more operations cost nothing.
        let perOperation = max(figure, Double(perf_wall_ns() - started) / Double(trial) / 1_000, 0.5)
        return max(trial, min(most, Int(time / perOperation)))
    }
}
