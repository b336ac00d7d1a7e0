// `--counts`: the allocations and system calls of an operation. Counts do not drift, so they can be checked on any machine.
//
// Every implementation runs in a process of its own, once to count allocations and once under ptrace. A traced process sleeps at every
// system call, which would be counted as well.

import CPerfPeers
import Glibc

struct Counting {
    let options: Options

    func run(_ cases: [Case]) throws(PerfError) {
        guard perf_can_count_allocations() else {
            throw PerfError("allocations are counted in front of glibc's allocator, which is not there")
        }
        let isCheck = options.checkPath != nil || options.writePath != nil
        var counted: [Baseline.Entry] = []
        for measured in cases where !(isCheck && measured.gated.isEmpty) && !(measured.isHeavy && measured.gated.isEmpty) {
            for contender in measured.contenders where !isCheck || contender.name == Contender.ours {
                Terminal.progress("\(measured.id): counting \(contender.name)")
                let counts = try CountedRun(measured, contender, withSystemCalls: !options.mayLackTracing)
                Terminal.endProgress()
                if contender.name == measured.contenders[0].name { Terminal.line("\(measured.id)  \(measured.title)") }
                Terminal.line("    \(Format.left(contender.name, 18)) \(counts.line)")
                guard contender.name == Contender.ours else { continue }
                counted += measured.gated.compactMap { count in
                    counts[count].map { Baseline.Entry(id: measured.id, count: count.rawValue, value: $0) }
                }
            }
        }
        if let path = options.writePath {
            guard options.filters.isEmpty, !options.mayLackTracing else {
                throw .usage("a baseline holds every count: no --filter, no --without-system-calls")
            }
            try Terminal.write(Baseline(counted).text, to: path)
        }
        if let path = options.checkPath { try check(Baseline(counted), against: path) }
    }

    private func check(_ counted: Baseline, against path: String) throws(PerfError) {
        let committed = try Baseline(text: Terminal.read(path))
        // Counts that were left out on purpose are not missing.
        let isPart = !options.filters.isEmpty || options.mayLackTracing
        let comparison = counted.compared(to: committed, mayLack: isPart)
        for sentence in comparison.hints { Terminal.line(sentence) }
        for sentence in comparison.failures { Terminal.line("FAILED \(sentence)") }
        guard comparison.failures.isEmpty else {
            throw PerfError(
                "\(comparison.failures.count) counts differ from \(path); if that is meant, run `make perf-baseline` and say why in the commit"
            )
        }
        Terminal.line("\(counted.entries.count) counts, none above \(path).")
    }
}

/// The counts of one implementation, for each operation.
struct CountedRun {
    private var counts: [Count: Double] = [:]
    private var systemCallNames = ""

    subscript(count: Count) -> Double? { counts[count] }

    init(_ measured: Case, _ contender: Contender, withSystemCalls: Bool) throws(PerfError) {
        let ops = Self.ops(measured, contender)
        let name = "\(measured.id)/\(contender.name)"
        let plain = try Child(arguments: ["--only", name, "--ops", String(ops), "--count-allocations"], isTraced: false)
        let fields = plain.fields
        guard let done = fields["ops"], done > 0 else { throw PerfError("\(name) did not say what it did: \(plain.output)") }
        counts[.allocations] = Self.rounded((fields["allocations"] ?? 0) / done)
        counts[.bytes] = Self.rounded((fields["allocated_bytes"] ?? 0) / done)
        counts[.heap] = Self.rounded((fields["live_bytes"] ?? 0) / done)
        counts[.wakeUps] = Self.rounded((fields["switches"] ?? 0) / done)
        guard withSystemCalls else { return }
        let traced = try Child(arguments: ["--only", name, "--ops", String(ops), "--mark-for-tracer"], isTraced: true)
        let tracedOps = traced.fields["ops"] ?? done
        counts[.systemCalls] = Self.rounded(Double(traced.calls.by_thread) / tracedOps)
        systemCallNames = Self.names(traced.calls, ops: tracedOps)
    }

    /// Few enough for a tracer, and enough that single events do not matter.
    private static func ops(_ measured: Case, _ contender: Contender) -> Int {
        switch measured.amount {
        case .upTo(let limit): min(limit / 2, contender.maximum, 2_000)
        case .fixed(_, let quick): min(quick, contender.maximum)
        }
    }

    private static func rounded(_ value: Double) -> Double { (value * 100).rounded() / 100 }

    private static func names(_ calls: perf_syscalls, ops: Double) -> String {
        let numbers = withUnsafeBytes(of: calls.numbers) { Array($0.bindMemory(to: Int64.self)) }
        let named = numbers.enumerated().filter { Double($0.element) / ops >= 0.005 }.sorted { $0.element > $1.element }
        return named.map { number, count in
            let name = perf_syscall_name(Int32(number)).map { String(cString: $0) } ?? "call \(number)"
            return "\(name) \(Format.fixed(Double(count) / ops, digits: 2))"
        }.joined(separator: ", ")
    }

    var line: String {
        func field(_ name: String, _ count: Count) -> String {
            "\(name) \(Format.right(counts[count].map { Format.fixed($0, digits: 2) } ?? "–", 6))"
        }
        let all = systemCallNames.isEmpty ? "" : "  all threads: \(systemCallNames)"
        return [
            field("allocations", .allocations), field("bytes", .bytes), field("wake-ups", .wakeUps), field("system calls", .systemCalls),
        ].joined(separator: "  ") + all
    }
}

/// Starts this program again, for one run.
private struct Child {
    let output: String
    var calls = perf_syscalls()

    var fields: [String: Double] {
        var fields: [String: Double] = [:]
        for word in output.split(whereSeparator: \.isWhitespace) {
            let parts = word.split(separator: "=")
            if parts.count == 2, let value = Double(parts[1]) { fields[String(parts[0])] = value }
        }
        return fields
    }

    init(arguments: [String], isTraced: Bool) throws(PerfError) {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { throw PerfError("no pipe: \(String(cString: strerror(errno)))") }
        defer { close(ends[0]) }
        let words = ([Terminal.ownPath] + arguments).map { strdup($0) } + [nil]
        defer { for word in words { free(word) } }
        var status: Int32 = 0
        // The output of a single run is one line, which fits into the pipe before anybody reads it.
        let code = isTraced ? perf_trace(words, ends[1], &calls, &status) : perf_run(words, ends[1], &status)
        close(ends[1])
        output = Terminal.readToEnd(of: ends[0])
        if code != 0 {
            let reason = String(cString: strerror(-code))
            throw PerfError(
                isTraced
                    ? "system calls cannot be counted, because tracing is refused here (ptrace: \(reason)); --without-system-calls leaves them out"
                    : "cannot start \(Terminal.ownPath): \(reason)")
        }
        guard status == 0 else { throw PerfError("\(arguments.joined(separator: " ")) ended with \(status)") }
    }
}
