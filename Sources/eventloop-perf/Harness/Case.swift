// Cases: a case is one row of the report, and its contenders do the same work on different loops.

import CPerfPeers

/// One workload with its parameters, and its contenders.
struct Case: Sendable {
    /// For example "W1.n100.a1". The part before the first point is the workload.
    let id: String
    let title: String
    let metric: Metric
    let amount: Amount
    let goals: [Goal]
    /// The setup takes seconds; `--quick` skips the case.
    let isHeavy: Bool
    /// The descriptors that it opens, if they are many. The case is left out where the limit does not allow them.
    let descriptors: Int
    /// The counts of our own contender that the baseline contains.
    let gated: Set<Count>
    var contenders: [Contender]

    init(
        _ id: String, _ title: String, metric: Metric = .wall, amount: Amount = .upTo(10_000_000), goals: [Goal] = [],
        isHeavy: Bool = false, descriptors: Int = 0, gated: Set<Count> = [], contenders: [Contender]
    ) {
        (self.id, self.title, self.metric, self.amount) = (id, title, metric, amount)
        (self.goals, self.isHeavy, self.descriptors, self.gated, self.contenders) = (goals, isHeavy, descriptors, gated, contenders)
    }

    var workload: String { String(id.prefix { $0 != "." }) }
}

/// One implementation of a case.
struct Contender: Sendable {
    /// The library to which a goal applies.
    static let ours = "eventloop"

    let name: String
    /// Fewer operations than the case's, for contenders whose operations take very long.
    let maximum: Int
    /// Does `ops` operations on a loop of its own. Setup and teardown are not measured.
    let measure: @Sendable (_ ops: Int) -> Measurement

    init(_ name: String, maximum: Int = .max, measure: @escaping @Sendable (_ ops: Int) -> Measurement) {
        (self.name, self.maximum, self.measure) = (name, maximum, measure)
    }
}

/// The kind of a figure. All but `value` are for each operation.
enum Metric: Sendable {
    case wall, processorTime, heapBytes
    /// The implementation measures the value itself, in nanoseconds.
    case value

    var unit: String { self == .heapBytes ? "B" : "ns" }
}

enum Amount: Sendable {
    /// As many operations as fit into the time of a run, but at most this many.
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

/// Quantities that are counted, not timed.
enum Count: String, Sendable, CaseIterable {
    case allocations, bytes
    case systemCalls = "system-calls"
    case wakeUps = "wake-ups"
    /// The growth of the heap: the memory of an item while it lives.
    case heap
}

/// The result of one run of one contender.
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
