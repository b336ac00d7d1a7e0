// Growth: what an operation costs beside N items, for N over several powers of ten. One `Growth` is one kind of item, with the operations
// that are measured beside so many of it.

import CPerfPeers

struct Growth: Sendable {
    struct Cost: Sendable {
        let id: String
        let title: String
        let step: Step

        init(_ id: String, _ title: String, _ step: Step = .one) { (self.id, self.title, self.step) = (id, title, step) }
    }

    /// Operations come in multiples of this.
    enum Step: Sendable {
        case one
        /// `perf_growth_batch`, between two passes.
        case batch
        /// The number of items, which one pass serves.
        case all

        func count(_ size: Int) -> Int {
            switch self {
            case .one: 1
            case .batch: perf_growth_batch(size)
            case .all: size
            }
        }
    }

    /// "timers"; `Growth` and `Cost` together are "timers.fire".
    let id: String
    let sizes: [Int]
    /// For `--quick`.
    let quickLimit: Int
    let bytesPerItem: Int
    let descriptorsPerItem: Int
    /// In the order in which a rig measures them.
    let costs: [Cost]
    var contenders: [GrowthContender]

    init(
        _ id: String, sizes: [Int], quickLimit: Int, bytesPerItem: Int = 0, descriptorsPerItem: Int = 0, costs: [Cost],
        contenders: [GrowthContender]
    ) {
        (self.id, self.sizes, self.quickLimit) = (id, sizes, quickLimit)
        (self.bytesPerItem, self.descriptorsPerItem) = (bytesPerItem, descriptorsPerItem)
        (self.costs, self.contenders) = (costs, contenders)
    }

    /// The sizes from 10 to `last`, about three for each power of ten while they are small.
    static func sizes(upTo last: Int) -> [Int] {
        var sizes: [Int] = []
        var power = 10
        while power <= last {  // ends: the power grows
            sizes += power < 100_000 ? [power, 3 * power] : [power]
            power *= 10
        }
        return sizes.filter { $0 < last } + [last]
    }
}

/// One implementation, on a loop of its own for each size.
struct GrowthContender: Sendable {
    let name: String
    let make: @Sendable (_ size: Int) -> GrowthRig

    init(_ name: String, make: @escaping @Sendable (_ size: Int) -> GrowthRig) { (self.name, self.make) = (name, make) }

    /// An implementation in C. Nil if it has nothing of the kind.
    init?(_ name: String, _ functions: @escaping @Sendable () -> perf_growth) {
        guard functions().make != nil else { return nil }
        self.init(name) { size in
            let functions = functions()
            let rig = functions.make(size)
            return GrowthRig { cost, ops in
                functions.run(rig, Int32(cost), ops)
            } end: {
                functions.end(rig)
            }
        }
    }
}

/// A loop with so many items. Made, used and ended on one thread.
struct GrowthRig {
    /// Does so many operations of this kind, and returns the nanoseconds that they took; negative if it has no such operation.
    let run: (_ cost: Int, _ ops: Int) -> Int64
    let end: () -> Void

    init(run: @escaping (_ cost: Int, _ ops: Int) -> Int64, end: @escaping () -> Void) { (self.run, self.end) = (run, end) }
}
