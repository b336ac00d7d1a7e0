// Runs the program with its options, for any set of contenders.

import CPerfPeers
import Glibc

enum Program {
    /// - Parameter catalog: the cases, with all contenders of this program.
    /// - Parameter growths: what is measured for growth.
    /// - Parameter missing: peers that this build lacks, each with the reason.
    static func run(catalog: [Case], growths: [Growth], missing: [String] = []) -> Int32 {
        if W10MessagePort.servedAsPartner(CommandLine.arguments) { return 0 }
        DescriptorLimit.raise()
        do throws(PerfError) {
            switch try Options.parse(CommandLine.arguments.dropFirst()) {
            case .help: Terminal.line(Options.usage)
            case .list: list(catalog, growths)
            case .only(let name, let options) where name.hasPrefix("growth."):
                Terminal.line(try GrowthRun.single(name, options, growths))
            case .only(let name, let options): try runOnly(name, options, catalog)
            case .measure(let options): try measure(options, catalog, growths, missing: missing)
            case .count(let options):
                try Counting(options: options).run(
                    catalog.filter { options.selects($0) && DescriptorLimit.objection(to: $0) == nil })
            }
            return 0
        } catch {
            Terminal.endProgress()
            Terminal.complain(error.sentence)
            return error.code
        }
    }

    private static func list(_ catalog: [Case], _ growths: [Growth]) {
        for measured in catalog {
            Terminal.line("\(Format.left(measured.id, 24)) \(measured.title)")
            Terminal.line("    \(measured.contenders.map(\.name).joined(separator: ", "))")
        }
        for growth in growths {
            for cost in growth.costs { Terminal.line("\(Format.left("growth.\(growth.id).\(cost.id)", 24)) \(cost.title)") }
            Terminal.line("    \(growth.contenders.map(\.name).joined(separator: ", "))")
        }
    }

    private static func runOnly(_ name: String, _ options: Options, _ catalog: [Case]) throws(PerfError) {
        let single = try SingleRun(name, in: catalog)
        if let objection = DescriptorLimit.objection(to: single.measured) { throw PerfError(objection, code: PerfError.notHere) }
        perf_count_allocations(options.countsAllocations || single.measured.metric == .heapBytes)
        perf_mark_for_tracer(options.marksForTracer)
        Terminal.line(single.perform(ops: options.ops))
    }

    private static func measure(_ options: Options, _ catalog: [Case], _ growths: [Growth], missing: [String]) throws(PerfError) {
        let selected = options.isGrowthOnly ? [] : catalog.filter { options.selects($0) && !(options.isQuick && $0.isHeavy) }
        let growing = growths.filter { options.selects($0) }
        guard !selected.isEmpty || !growing.isEmpty else { throw .usage("no case is called anything like that; --list names them") }
        let cases = selected.filter { DescriptorLimit.objection(to: $0) == nil }
        for sentence in missing + selected.compactMap(DescriptorLimit.objection) { Terminal.line("Left out: \(sentence)") }
        let results = measure(cases, options)
        // Growth goes to the limits of the machine. If it fails, the cases are not lost.
        if !growing.isEmpty { try write(results, [], options) }
        let grown = measure(growing, isQuick: options.isQuick)
        try write(results, grown, options)
        if let path = options.chartPath { Terminal.line("The chart is in \(path)") }
    }

    private static func write(_ results: [CaseResult], _ growths: [GrowthResult], _ options: Options) throws(PerfError) {
        if let path = options.jsonPath { try Terminal.write(JSON.text(of: results, growths), to: path) }
        if let path = options.markdownPath { try Terminal.write(Markdown.text(of: results), to: path) }
        if let path = options.chartPath { try Terminal.write(Chart.page(of: results, growths), to: path) }
    }

    private static func measure(_ cases: [Case], _ options: Options) -> [CaseResult] {
        if cases.isEmpty { return [] }
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
        return results
    }

    private static func measure(_ growths: [Growth], isQuick: Bool) -> [GrowthResult] {
        if growths.isEmpty { return [] }
        Terminal.line()
        Terminal.line(GrowthReport.head)
        let run = GrowthRun(isQuick: isQuick, progress: Terminal.progress)
        var results: [GrowthResult] = []
        for growth in growths {
            let (some, leftOut) = run.run(growth)
            Terminal.endProgress()
            for sentence in leftOut { Terminal.line("Left out: \(sentence)") }
            for result in some { for line in GrowthReport.lines(for: result) { Terminal.line(line) } }
            results += some
        }
        for line in GrowthReport.summary(of: results) { Terminal.line(line) }
        return results
    }
}
