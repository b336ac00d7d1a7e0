// The command line.

struct Options {
    var filters: [String] = []
    var isQuick = false
    /// Growth, and none of the cases.
    var isGrowthOnly = false
    var rounds: Int?
    var jsonPath: String?
    var chartPath: String?
    var markdownPath: String?

    // Single runs.
    var ops = 10_000
    /// For growth.
    var size = 1_000
    var countsAllocations = false
    var marksForTracer = false

    // Counting.
    var checkPath: String?
    var writePath: String?
    var mayLackTracing = false

    enum Command {
        case help, list
        case measure(Options)
        case only(String, Options)
        case count(Options)
    }

    static let usage = """
        usage: eventloop-perf [--quick] [--growth] [--filter TEXT]… [--rounds N] [--json FILE] [--chart FILE] [--markdown FILE]
               eventloop-perf --counts [--filter TEXT]… [--check FILE | --write-baseline FILE] [--without-system-calls]
               eventloop-perf --only CASE[/PEER] --ops N [--size N]
               eventloop-perf --list

        Measures run loops against each other: the same work in the handlers, in interleaved rounds.

          --quick            under a minute: shorter runs, fewer rounds, no large cases
          --growth           only growth: what an operation costs beside 10 to millions of items. A run without it measures growth last
          --filter TEXT      only cases whose name contains TEXT, or is in the workload TEXT ("growth" is one)
          --rounds N         how often each is measured (default: 7; 5 with --quick)
          --json FILE        everything measured, for programs
          --chart FILE       a page with a chart, for people
          --markdown FILE    the table as Markdown
          --counts           allocations, system calls and wake-ups for each operation instead of time
          --check FILE       with --counts: fail if a count is above the one in FILE
          --write-baseline FILE   with --counts: write the counts to FILE
          --without-system-calls  with --counts: go on where tracing is not permitted
          --only CASE/PEER   run one implementation once, with --ops operations, and nothing else; growth beside --size items
          --list             the cases and who takes part
        """

    static func parse(_ arguments: some Sequence<String>) throws(PerfError) -> Command {
        var options = Options()
        var only: String?
        var counts = false
        var rest = Array(arguments)[...]
        while let argument = rest.popFirst() {
            // Accepts `--ops 10` and `--ops=10`.
            let parts = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = String(parts[0])
            let attached = parts.count > 1 ? String(parts[1]) : nil

            func value() throws(PerfError) -> String {
                guard let text = attached ?? rest.popFirst(), !text.isEmpty else { throw .usage("\(name) needs a value") }
                return text
            }
            func number() throws(PerfError) -> Int {
                let text = try value()
                guard let number = Int(text), number > 0 else { throw .usage("\(name) takes a positive number, not '\(text)'") }
                return number
            }

            switch name {
            case "--filter": options.filters.append(try value())
            case "--rounds": options.rounds = try number()
            case "--json": options.jsonPath = try value()
            case "--chart": options.chartPath = try value()
            case "--markdown": options.markdownPath = try value()
            case "--ops": options.ops = try number()
            case "--size": options.size = try number()
            case "--only": only = try value()
            case "--check": options.checkPath = try value()
            case "--write-baseline": options.writePath = try value()
            case "--quick" where attached == nil: options.isQuick = true
            case "--growth" where attached == nil: options.isGrowthOnly = true
            case "--counts" where attached == nil: counts = true
            case "--without-system-calls" where attached == nil: options.mayLackTracing = true
            case "--count-allocations" where attached == nil: options.countsAllocations = true  // `--counts` passes it to its children
            case "--mark-for-tracer" where attached == nil: options.marksForTracer = true
            case "--list" where attached == nil: return .list
            case "--help" where attached == nil, "-h" where attached == nil: return .help
            default: throw .usage("there is no option '\(argument)'; --help lists them")
            }
        }
        if let only { return .only(only, options) }
        if counts || options.checkPath != nil || options.writePath != nil { return .count(options) }
        return .measure(options)
    }

    func selects(_ growth: Growth) -> Bool {
        filters.isEmpty || filters.contains { "growth.\(growth.id)".contains($0) }
    }

    func selects(_ measured: Case) -> Bool {
        filters.isEmpty || filters.contains { measured.id.contains($0) || $0.lowercased() == measured.workload.lowercased() }
    }
}
