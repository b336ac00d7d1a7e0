// The gate on counts: a higher count fails, a lower count passes with a hint, and no count may be missing.

import Testing

@testable import eventloop_perf

@Suite struct BaselineTests {
    private func entry(_ value: Double, _ id: String = "W4.pass", _ count: Count = .systemCalls) -> Baseline.Entry {
        Baseline.Entry(id: id, count: count.rawValue, value: value)
    }

    @Test func `equal counts pass without a message`() {
        #expect(Baseline([entry(1)]).compared(to: Baseline([entry(1)])) == Baseline.Comparison())
    }

    @Test(arguments: [(0.0, 1.0), (1, 2), (3, 3.05), (762, 778)])
    func `a higher count fails`(before: Double, now: Double) {
        let comparison = Baseline([entry(now)]).compared(to: Baseline([entry(before)]))
        #expect(comparison.failures.count == 1)
        #expect(comparison.hints.isEmpty)
    }

    @Test(arguments: [(1.0, 0.0), (3, 2), (762, 191)])
    func `a lower count passes, with a hint to update the baseline`(before: Double, now: Double) {
        let comparison = Baseline([entry(now)]).compared(to: Baseline([entry(before)]))
        #expect(comparison.failures.isEmpty)
        #expect(comparison.hints.count == 1)
    }

    @Test(arguments: [(0.0, 0.01), (1, 1.02), (762, 769), (2.01, 2)])
    func `one odd call in thousands of operations neither fails nor gives a hint`(before: Double, now: Double) {
        #expect(Baseline([entry(now)]).compared(to: Baseline([entry(before)])) == Baseline.Comparison())
    }

    @Test func `a count that is missing in the baseline fails`() {
        #expect(Baseline([entry(0)]).compared(to: Baseline([])).failures.count == 1)
    }

    @Test func `a count that is no longer taken fails, unless only a part was requested`() {
        let committed = Baseline([entry(1), entry(0, "W6.s10", .allocations)])
        #expect(Baseline([entry(1)]).compared(to: committed).failures.count == 1)
        #expect(Baseline([entry(1)]).compared(to: committed, mayLack: true) == Baseline.Comparison())
    }

    @Test func `a written baseline reads back equal, in the order of the names`() throws {
        let baseline = Baseline([entry(1_234.5, "W8.timer", .heap), entry(0, "W1.n100.a1", .allocations), entry(3, "W1.n100.a1")])
        #expect(try Baseline(text: baseline.text) == baseline)
        #expect(baseline.entries.map(\.key) == ["W1.n100.a1 allocations", "W1.n100.a1 system-calls", "W8.timer heap"])
    }

    @Test(arguments: ["W4.pass system-calls", "W4.pass system-calls one", "W4.pass system calls 1"])
    func `a malformed line is refused`(line: String) {
        #expect(throws: PerfError.self) { try Baseline(text: "# head\n\(line)\n") }
    }
}
