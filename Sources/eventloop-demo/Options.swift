// The command line.

struct Options {
    /// The default is 0: the kernel picks a free port, and the demo prints it. The first command that
    /// somebody runs must not fail because another program uses 8080.
    var port: UInt16 = 0
    var loops = 2
    var seconds = 3
    var isForever = false

    enum Command {
        case help
        case run(Options)
    }

    static let usage = """
        usage: eventloop-demo [--forever] [--port N] [--loops N] [--seconds N]

        Runs libevent's own HTTP server on a few run loops, drives it with requests
        from the main loop, and shows what the loops did: a line each second, one
        whole pass step by step, and every loop's statistics.

          --forever    keep serving afterwards, until Ctrl-C
          --port N     listen on 127.0.0.1 port N      (default: any free port)
          --loops N    server loops, 1 to 64           (default: 2)
          --seconds N  drive it for N seconds          (default: 3; 0 with --forever)
          --help       this text
        """

    static func parse(_ arguments: some Sequence<String>) throws(DemoError) -> Command {
        var options = Options()
        var rest = Array(arguments)[...]
        while let argument = rest.popFirst() {
            // Accepts `--port 8080` and `--port=8080`.
            let parts = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = String(parts[0])
            let attached = parts.count > 1 ? String(parts[1]) : nil

            func number(_ range: ClosedRange<Int>) throws(DemoError) -> Int {
                guard let text = attached ?? rest.popFirst() else {
                    throw .usage("\(name) needs a number from \(range.lowerBound) to \(range.upperBound)")
                }
                guard let value = Int(text), range.contains(value) else {
                    throw .usage("\(name) takes a number from \(range.lowerBound) to \(range.upperBound), not '\(text)'")
                }
                return value
            }

            switch name {
            case "--port": options.port = UInt16(try number(0...65535))
            case "--loops": options.loops = try number(1...64)
            case "--seconds": options.seconds = try number(0...3600)
            case "--forever" where attached == nil: options.isForever = true
            case "--help" where attached == nil, "-h" where attached == nil: return .help
            default: throw .usage("there is no option '\(argument)'; --help lists them")
            }
        }
        guard options.seconds > 0 || options.isForever else {
            throw .usage("--seconds 0 leaves nothing to do without --forever")
        }
        return .run(options)
    }
}
