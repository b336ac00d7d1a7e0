// Measures growth: for each size a rig of every contender, and on each rig every operation.

import CPerfPeers
import Glibc
import Synchronization

/// What one operation of each contender costs, by size.
struct GrowthResult: Sendable {
    let id: String
    let title: String
    let contenders: [Curve]

    struct Curve: Sendable {
        let name: String
        /// Nanoseconds for each operation: the median.
        let points: [(size: Int, cost: Double)]
        var slope: Slope? { Slope(points) }
    }

    /// The contenders whose cost is neither flat nor logarithmic.
    var growing: [Curve] { contenders.filter { $0.slope?.verdict == .growing } }
}

struct GrowthRun {
    let isQuick: Bool
    let progress: (String) -> Void
    /// A rig that took this long to make and measure is not made again.
    private static let longRig: Int64 = 500_000_000

    func run(_ growth: Growth) -> (results: [GrowthResult], leftOut: [String]) {
        let (sizes, leftOut) = self.sizes(of: growth)
        var figures: [[[Int: [Double]]]] = growth.costs.map { _ in growth.contenders.map { _ in [:] } }
        var isLong = Set<String>()
        for round in 1...(isQuick ? 1 : 3) {
            for size in sizes {
                for index in growth.contenders.indices.shuffled() where !isLong.contains("\(size) \(index)") {
                    let contender = growth.contenders[index]
                    progress("\(growth.id): round \(round), \(contender.name) with \(size)")
                    let started = perf_wall_ns()
                    for (cost, some) in measure(contender, growth, size).enumerated() {
                        figures[cost][index][size, default: []] += some
                    }
                    if perf_wall_ns() - started > Self.longRig { isLong.insert("\(size) \(index)") }
                }
            }
        }
        let results = growth.costs.enumerated().map { cost, about in
            GrowthResult(
                id: "\(growth.id).\(about.id)", title: about.title,
                contenders: zip(growth.contenders, figures[cost]).compactMap { contender, bySize in
                    let points = sizes.compactMap { size in Spread(bySize[size] ?? []).map { (size: size, cost: $0.median) } }
                    return points.isEmpty ? nil : GrowthResult.Curve(name: contender.name, points: points)
                })
        }
        return (results, leftOut)
    }

    /// The sizes that this machine's limits allow, and what is left out.
    private func sizes(of growth: Growth) -> (sizes: [Int], leftOut: [String]) {
        let wanted = growth.sizes.filter { !isQuick || $0 <= growth.quickLimit }
        var most = Int.max
        var reason = ""
        if growth.descriptorsPerItem > 0 {
            most = DescriptorLimit.available / growth.descriptorsPerItem
            reason = "the limit of descriptors allows \(Format.grouped(Int64(most))) (ulimit -Hn)"
        }
        if growth.bytesPerItem > 0 {
            // Half of what is free.
            let free = sysconf(Int32(_SC_AVPHYS_PAGES)) * sysconf(Int32(_SC_PAGESIZE)) / 2
            most = min(most, free / growth.bytesPerItem)
            reason = "half of the free memory is enough for \(Format.grouped(Int64(most)))"
        }
        let allowed = wanted.filter { $0 <= most }
        guard let last = wanted.last, allowed.count < wanted.count else { return (wanted, []) }
        // As far as it goes, if that says more than the last allowed size.
        let further = most > 3 * (allowed.last ?? 0) / 2 ? [most / 100 * 100] : []
        return (allowed + further, ["growth of \(growth.id) up to \(Format.grouped(Int64(last))), because \(reason)"])
    }

    /// On a new thread: some figures for each cost.
    private func measure(_ contender: GrowthContender, _ growth: Growth, _ size: Int) -> [[Double]] {
        let result = Mutex<[[Double]]>([])
        withoutActuallyEscaping({ [isQuick] in
            let rig = contender.make(size)
            var figures: [[Double]] = []
            for (index, cost) in growth.costs.enumerated() {
                let sampling = Sampling(rig: rig, cost: index, step: cost.step.count(size), isQuick: isQuick)
                figures.append(sampling.figures())
            }
            rig.end()
            result.withLock { $0 = figures }
        }) { body in
            let box = Body(run: body)
            PlainThread { box.run() }.join()
        }
        return result.withLock { $0 }
    }

    /// One operation of one contender beside `--size` items, for callgrind and the like. The name is "growth.timers.fire/libevent".
    static func single(_ name: String, _ options: Options, _ growths: [Growth]) throws(PerfError) -> String {
        let parts = name.split(separator: "/", maxSplits: 1).map(String.init)
        for growth in growths {
            guard let cost = growth.costs.firstIndex(where: { "growth.\(growth.id).\($0.id)" == parts[0] }) else { continue }
            let wanted = parts.count > 1 ? parts[1] : Contender.ours
            guard let contender = growth.contenders.first(where: { $0.name == wanted }) else { break }
            let taken = Mutex<Int64>(0)
            let step = growth.costs[cost].step.count(options.size)
            let ops = (options.ops + step - 1) / step * step
            withoutActuallyEscaping({
                let rig = contender.make(options.size)
                taken.withLock { $0 = rig.run(cost, ops) }
                rig.end()
            }) { run in
                let body = Body(run: run)
                PlainThread { body.run() }.join()
            }
            return "\(name) size=\(options.size) ops=\(ops) figure=\(Format.number(Double(taken.withLock { $0 }) / Double(ops)))ns"
        }
        throw .usage("there is no \(name); --list names them")
    }

    private struct Body: @unchecked Sendable {
        // SAFETY: run once, by a thread that this one waits for.
        let run: () -> Void
    }
}

/// Figures of one operation of one rig.
private struct Sampling {
    let rig: GrowthRig
    let cost: Int
    let step: Int
    let isQuick: Bool

    /// Nanoseconds for each operation. The first runs determine how many operations make a sample.
    func figures() -> [Double] {
        let time: Int64 = isQuick ? 500_000 : 2_000_000
        let most = 1_000_000 / step * step
        var ops = step
        var taken = rig.run(cost, ops)
        guard taken >= 0 else { return [] }
        // What takes so long alone needs no second.
        if taken > 100 * time { return [Double(taken) / Double(ops)] }
        while taken < time && ops < most {  // ends: the number doubles at least
            let factor = max(2, min(50, Int(time / max(taken, 1)) + 1))
            ops = min(ops * factor, max(most, step))
            taken = rig.run(cost, ops)
        }
        return (0..<5).map { _ in Double(rig.run(cost, ops)) / Double(ops) }
    }
}
