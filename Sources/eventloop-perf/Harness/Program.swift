// Runs the program with its options, for any set of contenders.

import CPerfPeers
import Glibc

enum Program {
    /// - Parameter catalog: the cases, with all contenders of this program.
    /// - Parameter missing: peers that this build lacks, each with the reason.
    static func run(catalog: [Case], missing: [String] = []) -> Int32 {
        if W10MessagePort.servedAsPartner(CommandLine.arguments) { return 0 }
        do throws(PerfError) {
            switch try Options.parse(CommandLine.arguments.dropFirst()) {
            case .help: Terminal.line(Options.usage)
            case .list: list(catalog)
            case .only(let name, let options): try runOnly(name, options, catalog)
            case .measure(let options): try measure(options, catalog, missing: missing)
            case .count(let options): try Counting(options: options).run(catalog.filter(options.selects))
            }
            return 0
        } catch {
            Terminal.endProgress()
            Terminal.complain(error.sentence)
            return error.code
        }
    }

    private static func list(_ catalog: [Case]) {
        for measured in catalog {
            Terminal.line("\(Format.left(measured.id, 24)) \(measured.title)")
            Terminal.line("    \(measured.contenders.map(\.name).joined(separator: ", "))")
        }
    }

    private static func runOnly(_ name: String, _ options: Options, _ catalog: [Case]) throws(PerfError) {
        let single = try SingleRun(name, in: catalog)
        perf_count_allocations(options.countsAllocations || single.measured.metric == .heapBytes)
        perf_mark_for_tracer(options.marksForTracer)
        Terminal.line(single.perform(ops: options.ops))
    }

    private static func measure(_ options: Options, _ catalog: [Case], missing: [String]) throws(PerfError) {
        let cases = catalog.filter { options.selects($0) && !(options.isQuick && $0.isHeavy) }
        guard !cases.isEmpty else { throw .usage("no case is called anything like that; --list names them") }
        for sentence in missing { Terminal.line("Left out: \(sentence)") }
        Terminal.line(Report.head)
        let rounds = Rounds(
            count: options.rounds ?? (options.isQuick ? 5 : 7), nanosecondsPerRun: options.isQuick ? 15e6 : 100e6, isQuick: options.isQuick,
            progress: Terminal.progress)
        var results: [CaseResult] = []
        for measured in cases {
            perf_count_allocations(measured.metric == .heapBytes)
            let result = rounds.run(measured)
            perf_count_allocations(false)
            Terminal.endProgress()
            for line in Report.lines(for: result) { Terminal.line(line) }
            results.append(result)
        }
        for line in Report.summary(of: results) { Terminal.line(line) }
        if let path = options.jsonPath { try Terminal.write(JSON.text(of: results), to: path) }
        if let path = options.markdownPath { try Terminal.write(Markdown.text(of: results), to: path) }
        if let path = options.chartPath {
            try Terminal.write(Chart.page(of: results), to: path)
            Terminal.line("The chart is in \(path)")
        }
    }
}
