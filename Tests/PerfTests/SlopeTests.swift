// How costs grow: the slope, what counts as logarithmic, and the scale of the chart.

import Glibc
import Testing

@testable import eventloop_perf

@Suite struct SlopeTests {
    private let sizes = [10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000]

    private func slope(_ cost: (Double) -> Double) throws -> Slope {
        try #require(Slope(sizes.map { (size: $0, cost: cost(Double($0))) }))
    }

    @Test(arguments: [0.0, 0.5, 1, 2, -0.3])
    func `the exponent of a power is found exactly`(exponent: Double) throws {
        let slope = try slope { 100 * pow($0, exponent) }
        #expect(abs(slope.exponent - exponent) < 1e-9)
        #expect(slope.verdict == (exponent > 0 ? .growing : .flat))
    }

    @Test func `a constant with noise is flat, and a logarithm is logarithmic`() throws {
        #expect(try slope { $0 == 1_000 ? 130 : 100 }.verdict == .flat)
        #expect(try slope { 20 + 30 * log2($0) }.verdict == .logarithmic)
    }

    @Test func `a single bad measurement does not change the verdict`() throws {
        for size in sizes {
            #expect(try slope { $0 == Double(size) ? 5_000 : 100 }.verdict == .flat)
            #expect(try slope { $0 == Double(size) ? 100 : 10 * $0 }.verdict == .growing)
        }
    }

    @Test func `what leaves the caches counts as logarithmic, and a small linear part does not`() throws {
        // From 30 ns to 500, as when four lines come from memory and no longer from a cache.
        #expect(try slope { $0 < 3_000 ? 30 : $0 < 30_000 ? 200 : 500 }.verdict == .caches)
        #expect(try slope { 100 + $0 }.verdict == .growing)
        #expect(try slope { 3 * $0 }.verdict == .growing)
        // Measured: a heap of ten million. It levels off, so the slope says 2.1 µs where the figures say 0.9.
        let heap: [(size: Int, cost: Double)] = [(10_000, 52), (30_000, 158), (100_000, 335), (1_000_000, 971), (10_000_000, 900)]
        #expect(try #require(Slope(heap)).verdict == .caches)
    }

    @Test func `only the last three powers of ten count`() throws {
        #expect(try slope { $0 < 100 ? 1_000_000 / $0 : 50 }.verdict == .flat)
        #expect(try slope { max(1_000, $0) }.verdict == .growing)
    }

    @Test func `fewer than three sizes, and less than two powers of ten, have no slope`() {
        #expect(Slope([(size: 10, cost: 1), (size: 30, cost: 2), (size: 100, cost: 3)]) == nil)
        #expect(Slope([]) == nil)
        #expect(Slope([(size: 10, cost: 1), (size: 100, cost: 2)]) == nil)
        #expect(Slope([(size: 10, cost: 1), (size: 100, cost: 2), (size: 1_000, cost: .nan)]) == nil)
    }

    @Test func `the words say the exponent, and what is neither flat nor logarithmic`() throws {
        #expect(try slope { _ in 7 }.words == "flat (n^0.00)")
        #expect(try slope { 100 / $0 }.words == "falling (n^-1.00)")
        #expect(try slope { 2 * $0 }.words == "n^1.00: neither flat nor logarithmic")
    }
}

@Suite struct GrowthReportTests {
    private func result(_ curves: [(String, (Double) -> Double)]) -> GrowthResult {
        GrowthResult(
            id: "things.ask", title: "ask a thing",
            contenders: curves.map { name, cost in
                GrowthResult.Curve(name: name, points: [10, 100, 1_000].map { (size: $0, cost: cost(Double($0))) })
            })
    }

    @Test func `a cost that grows is named, with the peers that grow as well`() {
        let both = result([(Contender.ours, { $0 }), ("libevent", { $0 }), ("libuv", { _ in 1 })])
        #expect(
            GrowthReport.summary(of: [both])
                == ["GROWS: ask a thing (growth.things.ask) is neither flat nor logarithmic; so is that of libevent."])
        let theirs = result([(Contender.ours, { _ in 5 }), ("libevent", { $0 })])
        #expect(GrowthReport.summary(of: [theirs]) == ["No cost of eventloop grows more than logarithmically."])
    }

    @Test func `the sizes of a kind end with the last, and are even on a logarithmic scale`() {
        #expect(Growth.sizes(upTo: 1_000) == [10, 30, 100, 300, 1_000])
        #expect(Growth.sizes(upTo: 50_000).suffix(3) == [10_000, 30_000, 50_000])
        #expect(Growth.sizes(upTo: 10_000_000).suffix(3) == [100_000, 1_000_000, 10_000_000])
    }

    /// Of ours and libevent's, at small sizes: what a rig returns is what its operations took.
    @Test func `each rig does each of its operations`() {
        for growth in GrowthCatalog.all {
            for contender in growth.contenders {
                PlainThread {
                    let rig = contender.make(10)
                    for (index, cost) in growth.costs.enumerated() {
                        let taken = rig.run(index, cost.step.count(10))
                        #expect(taken > 0 || taken == -1 && contender.name != Contender.ours, "\(growth.id).\(cost.id), \(contender.name)")
                    }
                    rig.end()
                }.join()
            }
        }
    }

    @Test func `what the limit of descriptors does not allow is left out, and said`() {
        let hungry = Growth(
            "things", sizes: [10, 100, 1_000_000_000], quickLimit: .max, descriptorsPerItem: 1, costs: [.init("none", "nothing")],
            contenders: [
                GrowthContender(Contender.ours) { _ in
                    GrowthRig { _, _ in
                        -1
                    } end: {
                    }
                }
            ])
        let (results, leftOut) = GrowthRun(isQuick: true) { _ in }.run(hungry)
        #expect(leftOut.count == 1 && leftOut[0].hasPrefix("growth of things up to 1,000,000,000, because the limit of descriptors allows"))
        #expect(results.map(\.id) == ["things.none"] && results[0].contenders.isEmpty)
        let measured = Case("T.case", "a case", descriptors: 1_000_000_000, contenders: [])
        #expect(DescriptorLimit.objection(to: measured)?.hasPrefix("T.case opens 1,000,000,000 descriptors, and the limit allows") == true)
        #expect(DescriptorLimit.objection(to: Case("T.small", "a case", contenders: [])) == nil)
    }
}
