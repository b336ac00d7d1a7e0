// The page with the charts: where values are placed, and that no label is cut.

import Testing

@testable import eventloop_perf

@Suite struct ScaleTests {
    @Test(arguments: [(0.01, 0.0), (1, 0.5), (100, 1), (0.0001, 0), (1e9, 1), (10, 0.75)])
    func `a value has its place on a logarithmic scale, and one beyond it is at the end`(value: Double, place: Double) {
        #expect(abs(LogScale(from: 0.01, to: 100).place(value) - place) < 1e-9)
    }

    @Test func `a scale around values goes from a power of ten to another`() throws {
        let scale = try #require(LogScale(around: [23, 4_500, .nan, 0]))
        #expect(scale == LogScale(from: 10, to: 10_000))
        #expect(scale.decades == [10, 100, 1_000, 10_000])
        #expect(try #require(LogScale(around: [10, 10])) == LogScale(from: 10, to: 100))
        #expect(LogScale(around: [0, .infinity]) == nil)
    }
}

@Suite struct ChartTests {
    private let title = "a name that is long enough to be cut where there are only forty characters of room <for it>"

    private var page: String {
        let contenders = [(Contender.ours, [50.0]), ("libevent", [100.0]), ("slow", [1e9])]
        let measured = Case(
            "T.case", title, goals: [Goal("libevent", ratio: 0.4)], contenders: contenders.map { Contender($0.0) { Measurement(ops: $0) } })
        let growth = GrowthResult(
            id: "things.ask", title: title,
            contenders: [GrowthResult.Curve(name: Contender.ours, points: [10, 100, 1_000].map { (size: $0, cost: Double($0)) })])
        return Chart.page(of: [CaseResult(measured: measured, contenders: contenders.map { (name: $0.0, figures: $0.1) })], [growth])
    }

    @Test func `titles are complete and escaped, in each of the charts`() {
        let escaped = title.replacing("<for it>", with: "&lt;for it&gt;")
        #expect(page.ranges(of: escaped).count == 4)
        #expect(!page.contains("<for it>") && !page.contains("…"))
    }

    @Test func `a bar goes from the line to its ratio, and one beyond the scale says so`() {
        // The goal is missed by a quarter; ours is half of libevent's, and the slow one is beyond a hundred.
        #expect(page.contains("<i class=\"missed more\" style=\"left:50.0%;width:4.85%\"></i>"))
        #expect(page.contains("<i class=\"ours less\" style=\"left:42.47%;width:7.53%\"></i>"))
        #expect(page.contains("<i class=\"peer more beyond\" style=\"left:50.0%;width:50.0%\"></i>"))
    }

    @Test func `growth that is neither flat nor logarithmic is said in words`() {
        #expect(page.contains("<span class=\"flag\">eventloop: n^1.00: neither flat nor logarithmic</span>"))
        #expect(page.contains("GROWS: "))
    }

    @Test func `the page has no part for what was not measured`() {
        let empty = Chart.page(of: [], [])
        #expect(!empty.contains("<h2>"))
        #expect(!empty.contains("<script"))
    }
}
