// The committed counts, and the comparison of new counts with them. Pure, and tested.

struct Baseline: Equatable {
    struct Entry: Equatable {
        var id: String
        var count: String
        var value: Double

        var key: String { "\(id) \(count)" }
    }

    struct Comparison: Equatable {
        /// The reasons for which the check fails.
        var failures: [String] = []
        /// Counts that fell, and should be recorded in the baseline.
        var hints: [String] = []
    }

    /// Sorted by name, so that a change shows as a change of lines.
    let entries: [Entry]

    init(_ entries: [Entry]) { self.entries = entries.sorted { $0.key < $1.key } }

    // MARK: The file

    static let head = """
        # What each operation takes, counted by `eventloop-perf --counts`: allocations, bytes taken from the heap, heap that stays
        # taken, system calls of the thread that does it, and times that the kernel put that thread to sleep.
        # `make perf-check` fails on a rise. `make perf-baseline` writes this file anew.

        """

    var text: String {
        Self.head
            + entries.map {
                "\(Format.left($0.id, 28)) \(Format.left($0.count, 14)) \(Format.right(Format.fixed($0.value, digits: 2), 10))\n"
            }.joined()
    }

    init(text: String) throws(PerfError) {
        var entries: [Entry] = []
        for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let words = line.split(separator: " ")
            if words.isEmpty || words[0].hasPrefix("#") { continue }
            guard words.count == 3, let value = Double(words[2].filter { $0 != "," }) else {
                throw PerfError("line \(number + 1) of the baseline is not 'case count number': \(line)")
            }
            entries.append(Entry(id: String(words[0]), count: String(words[1]), value: value))
        }
        self.init(entries)
    }

    // MARK: Comparing

    /// Some runs include one or two unusual operations. One more call or allocation for each operation is far above this tolerance.
    static func tolerance(for value: Double) -> Double { max(0.02, abs(value) * 0.01) }

    /// - Parameter mayLack: if true, these are only some of the counts, so a count that is only in `committed` is no failure.
    func compared(to committed: Baseline, mayLack: Bool = false) -> Comparison {
        var comparison = Comparison()
        let old = Dictionary(committed.entries.map { ($0.key, $0.value) }) { first, _ in first }
        for entry in entries {
            let now = Format.fixed(entry.value, digits: 2)
            guard let before = old[entry.key] else {
                comparison.failures.append("\(entry.key): \(now), and the baseline does not know it")
                continue
            }
            let change = "\(entry.key): \(now), was \(Format.fixed(before, digits: 2))"
            if entry.value > before + Self.tolerance(for: before) {
                comparison.failures.append(change)
            } else if entry.value < before - Self.tolerance(for: before) {
                comparison.hints.append("better: \(change); `make perf-baseline` keeps it")
            }
        }
        let new = Set(entries.map(\.key))
        if !mayLack {
            comparison.failures += committed.entries.filter { !new.contains($0.key) }.map {
                "\($0.key): in the baseline, but not counted any more"
            }
        }
        return comparison
    }
}
