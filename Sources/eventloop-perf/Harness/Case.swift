// What is measured: a case is one row of the report, and its contenders do the same work on different loops.

import CPerfPeers

/// One workload with its parameters, and everybody who can do it.
struct Case: Sendable {
    /// "W1.n100.a1". The part before the first point is the workload.
    let id: String
    let title: String
    let metric: Metric
    let amount: Amount
    let goals: [Goal]
    /// Takes seconds to set up; `--quick` passes it over.
    let isHeavy: Bool
    /// What the counts baseline holds of our own contender.
    let gated: Set<Count>
    var contenders: [Contender]

    init(
        _ id: String, _ title: String, metric: Metric = .wall, amount: Amount = .upTo(10_000_000), goals: [Goal] = [],
        isHeavy: Bool = false,
        gated: Set<Count> = [], contenders: [Contender]
    ) {
        (self.id, self.title, self.metric, self.amount) = (id, title, metric, amount)
        (self.goals, self.isHeavy, self.gated, self.contenders) = (goals, isHeavy, gated, contenders)
    }

    var workload: String { String(id.prefix { $0 != "." }) }
}

/// One implementation of a case.
struct Contender: Sendable {
    /// The library that a goal is about.
    static let ours = "eventloop"

    let name: String
    /// Fewer than the case's, for those whose operations take very long.
    let maximum: Int
    /// Does `ops` operations on a loop of its own; setting up and tearing down are not measured.
    let measure: @Sendable (_ ops: Int) -> Measurement

    init(_ name: String, maximum: Int = .max, measure: @escaping @Sendable (_ ops: Int) -> Measurement) {
        (self.name, self.maximum, self.measure) = (name, maximum, measure)
    }
}

/// What a figure is about. All but `value` are per operation.
enum Metric: Sendable {
    case wall, processorTime, heapBytes
    /// The implementation says what it found, in nanoseconds.
    case value

    var unit: String { self == .heapBytes ? "B" : "ns" }
}

enum Amount: Sendable {
    /// As many operations as fill the time of a run, up to this many.
    case upTo(Int)
    case fixed(full: Int, quick: Int)
}

/// At most `ratio` times the best of these peers.
struct Goal: Sendable {
    let peers: [String]
    let ratio: Double

    init(_ peers: String..., ratio: Double) {
        (self.peers, self.ratio) = (peers, ratio)
    }
}

/// What is counted, and never timed.
enum Count: String, Sendable, CaseIterable {
    case allocations, bytes
    case systemCalls = "system-calls"
    case wakeUps = "wake-ups"
    /// The heap's growth: what an item costs while it lives.
    case heap
}

/// What one run of one contender found.
struct Measurement: Sendable {
    var sample = perf_sample()
    var ops: Int
    /// For `Metric.value`.
    var value: Double?

    func figure(_ metric: Metric) -> Double {
        let count = Double(max(ops, 1))
        return switch metric {
        case .wall: Double(sample.wall_ns) / count
        case .processorTime: Double(sample.cpu_ns) / count
        case .heapBytes: Double(sample.live_bytes) / count
        case .value: value ?? .nan
        }
    }
}
