// Figures computed from rounds: medians, quartiles, and whether a goal is met; and their tables.

import Testing

@testable import eventloop_perf

@Suite struct StatisticsTests {
    @Test(arguments: [
        ([3.0], 3.0, 3.0, 3.0),
        ([4, 1, 3, 2], 2.5, 1.75, 3.25),
        ([5, 1, 4, 2, 3], 3, 2, 4),
        ([7, 7, 7], 7, 7, 7),
    ])
    func `the median and the quartiles interpolate linearly between the figures`(
        figures: [Double], median: Double, lower: Double, upper: Double
    ) throws {
        let spread = try #require(Spread(figures))
        #expect(spread.median == median)
        #expect(spread.lowerQuartile == lower)
        #expect(spread.upperQuartile == upper)
        #expect(spread.minimum == figures.min())
        #expect(spread.maximum == figures.max())
    }

    @Test func `without finite figures there is no spread`() {
        #expect(Spread([]) == nil)
        #expect(Spread([.nan, .infinity]) == nil)
        #expect(Spread([.nan, 2])?.median == 2)
    }

    @Test func `one outlier in seven rounds does not move the median`() throws {
        #expect(try #require(Spread([10, 10, 11, 9, 10, 10, 900])).median == 10)
    }

    @Test(arguments: [
        (0.0, "0.00"), (0.004, "0.00"), (9.994, "9.99"), (43.21, "43.2"), (1907.4, "1,907"), (-0.001, "0.00"), (-2.5, "-2.50"),
        (1_234_567, "1,234,567"), (.nan, "–"),
    ])
    func `a number has three digits, or all digits before the decimal point`(value: Double, text: String) {
        #expect(Format.number(value) == text)
    }
}

@Suite struct RatioTests {
    @Test(arguments: [(0.0034, "0.0034"), (0.002, "0.0020"), (0.00042, "0.00042"), (0.0996, "0.10"), (0, "0.00"), (2.5, "2.50")])
    func `a small ratio keeps two digits`(value: Double, text: String) {
        #expect(Format.ratio(value) == text)
    }
}

@Suite struct GoalTests {
    private func result(ours: [Double], peers: [(String, [Double])], goal: Goal) -> CaseResult {
        let contenders = [(Contender.ours, ours)] + peers
        let measured = Case("T.case", "a case", goals: [goal], contenders: contenders.map { Contender($0.0) { Measurement(ops: $0) } })
        return CaseResult(measured: measured, contenders: contenders.map { (name: $0.0, figures: $0.1) })
    }

    @Test(arguments: [(105.0, true), (104, true), (106, false)])
    func `a goal is met at its ratio and below`(ours: Double, isMet: Bool) throws {
        let result = result(ours: [ours], peers: [("libevent", [100])], goal: Goal("libevent", ratio: 1.05))
        let judgement = try #require(result.judge(result.measured.goals[0]))
        #expect(judgement.verdict == (isMet ? .met : .missed))
    }

    @Test func `a goal about several peers compares with the best of them`() throws {
        let result = result(
            ours: [50], peers: [("slow", [1_000]), ("fast", [60])], goal: Goal("slow", "fast", "absent", ratio: 0.5))
        let judgement = try #require(result.judge(result.measured.goals[0]))
        #expect(judgement.peer == "fast")
        #expect(judgement.verdict == .missed)
    }

    @Test func `a goal whose peers did not take part is not judged`() {
        let result = result(ours: [50], peers: [("libevent", [60])], goal: Goal("libuv", ratio: 2))
        #expect(result.judge(result.measured.goals[0]) == nil)
    }

    @Test func `case names are unique, and each case has our own contender first`() {
        let cases = Catalog.all
        #expect(Set(cases.map(\.id)).count == cases.count)
        for measured in cases {
            #expect(measured.contenders.first?.name == Contender.ours, "\(measured.id)")
            #expect(Set(measured.contenders.map(\.name)).count == measured.contenders.count, "\(measured.id)")
        }
    }
}

@Suite struct MarkdownTests {
    @Test func `a workload whose cases are not in one place of the program has one table, in the order of its cases`() {
        let results = ["W1.first", "W2.other", "W1.second"].map { CaseResult(measured: Case($0, "a case", contenders: []), contenders: []) }
        let firsts = Markdown.text(of: results).split(separator: "\n").filter { $0.hasPrefix("| ") }.map { $0.split(separator: " ")[1] }
        #expect(firsts == ["W1", "`W1.first`", "`W1.second`", "W2", "`W2.other`"])
    }
}
