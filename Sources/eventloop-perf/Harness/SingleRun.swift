// Runs one implementation with a number of operations, and nothing else: for callgrind, strace and `--counts`.

import CPerfPeers

struct SingleRun {
    let measured: Case
    let contender: Contender

    /// `name` is "W1.n100.a1/libevent"; without a peer it means our own implementation.
    init(_ name: String, in cases: [Case]) throws(PerfError) {
        let parts = name.split(separator: "/", maxSplits: 1).map(String.init)
        guard let measured = cases.first(where: { $0.id == parts[0] }) else {
            throw .usage("there is no case '\(parts[0])'; --list names them")
        }
        let wanted = parts.count > 1 ? parts[1] : Contender.ours
        guard let contender = measured.contenders.first(where: { $0.name == wanted }) else {
            throw .usage("\(measured.id) has no '\(wanted)', only \(measured.contenders.map(\.name).joined(separator: ", "))")
        }
        (self.measured, self.contender) = (measured, contender)
    }

    /// A line of `name=value` pairs, for programs and people.
    func perform(ops: Int) -> String {
        let measurement = contender.measure(ops)
        let sample = measurement.sample
        let fields: [(String, Int64)] = [
            ("ops", Int64(measurement.ops)), ("wall_ns", sample.wall_ns), ("cpu_ns", sample.cpu_ns), ("allocations", sample.allocations),
            ("allocated_bytes", sample.allocated_bytes), ("live_bytes", sample.live_bytes), ("switches", sample.switches),
        ]
        let figure = Format.number(measurement.figure(measured.metric))
        return "\(measured.id)/\(contender.name) " + fields.map { "\($0)=\($1)" }.joined(separator: " ")
            + " figure=\(figure)\(measured.metric.unit)"
    }
}
