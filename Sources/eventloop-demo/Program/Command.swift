// The commands and their options.

enum Command {
    case help
    case drive(DriveOptions)
    case serve(ServeOptions)
    case control(ControlOptions)

    static let usage = """
        usage: eventloop-demo [--forever] [--port N] [--loops N] [--seconds N]
                              [--timeline PATH]
               eventloop-demo serve [--port N] [--loops N] [--drain N] [--name NAME]
               eventloop-demo ctl status|stop [--name NAME] [--timeout N]

        Without a command: runs libevent's own HTTP server on a few run loops, drives
        it with requests from the main loop, and shows what the loops did: a line each
        second, one whole pass step by step, and every loop's statistics.

          --forever    keep serving afterwards, until Ctrl-C
          --port N     listen on 127.0.0.1 port N      (default: any free port)
          --loops N    server loops, 1 to 64           (default: 2)
          --seconds N  drive it for N seconds          (default: 3; 0 with --forever)
          --timeline PATH  where to write what the loops did, as a page for a
                       browser                         (default: a temporary file)

        serve: serves until SIGINT, SIGTERM or `ctl stop`, then answers the requests in
        progress and ends. The page /status shows each loop live, /timeline records
        them for a moment. While the server waits for the last answers, Ctrl-C ends
        it at once.

          --port N     as above; 0 means any free port (default: 8080)
          --loops N    as above                        (default: 2)
          --drain N    wait at most N seconds for requests in progress (default: 10)
          --name NAME  the server's name for ctl       (default: eventloop-demo-PORT)

        ctl: `ctl status` prints what each loop of a running server does; `ctl stop`
        ends the server and waits until it has ended.

          --name NAME  which server; required if several run, or if it has a name
                       of its own
          --timeout N  wait at most N seconds          (default: 5, and 30 for stop)

          --help       this text
        """

    static func parse(_ arguments: some Sequence<String>) throws(DemoError) -> Command {
        var reader = ArgumentReader(arguments)
        switch reader.command() {
        case nil: return try DriveOptions.read(&reader)
        case "serve": return try ServeOptions.read(&reader)
        case "ctl": return try ControlOptions.read(&reader)
        case "help": return .help
        case let other?: throw .usage("there is no command '\(other)', only serve and ctl; --help explains them")
        }
    }
}

struct DriveOptions {
    /// The default is 0: the kernel picks a free port, and the demo prints it. The first command that
    /// somebody runs must not fail because another program uses 8080.
    var port: UInt16 = 0
    var loops = 2
    var seconds = 3
    var isForever = false
    /// Nil: a temporary file.
    var timeline: String?

    static func read(_ reader: inout ArgumentReader) throws(DemoError) -> Command {
        var options = DriveOptions()
        while let option = reader.option() {
            switch option {
            case "--port": options.port = UInt16(try reader.number(0...65535))
            case "--loops": options.loops = try reader.number(1...64)
            case "--seconds": options.seconds = try reader.number(0...3600)
            case "--timeline": options.timeline = try reader.text("a path")
            case "--forever" where reader.hasNoValue: options.isForever = true
            case "--help" where reader.hasNoValue, "-h" where reader.hasNoValue: return .help
            default: throw reader.unknown("eventloop-demo")
            }
        }
        guard options.seconds > 0 || options.isForever else {
            throw .usage("--seconds 0 leaves nothing to do without --forever")
        }
        return .drive(options)
    }
}

struct ServeOptions {
    var port: UInt16 = 8080
    var loops = 2
    /// How long to wait for requests in progress.
    var drainSeconds = 10
    /// Nil: named after the port.
    var name: String?

    static func read(_ reader: inout ArgumentReader) throws(DemoError) -> Command {
        var options = ServeOptions()
        while let option = reader.option() {
            switch option {
            case "--port": options.port = UInt16(try reader.number(0...65535))
            case "--loops": options.loops = try reader.number(1...64)
            case "--drain": options.drainSeconds = try reader.number(0...3600)
            case "--name": options.name = try reader.text("a name")
            case "--help" where reader.hasNoValue, "-h" where reader.hasNoValue: return .help
            default: throw reader.unknown("serve")
            }
        }
        return .serve(options)
    }
}

struct ControlOptions {
    enum Action: String { case status, stop }
    var action: Action
    var name: String?
    var timeoutSeconds: Int?

    var timeout: Duration { .seconds(timeoutSeconds ?? (action == .status ? 5 : 30)) }

    static func read(_ reader: inout ArgumentReader) throws(DemoError) -> Command {
        var action: Action?
        var (name, timeout): (String?, Int?) = (nil, nil)
        while let option = reader.option() {
            switch option {
            case "--name": name = try reader.text("a name")
            case "--timeout": timeout = try reader.number(0...3600)
            case "--help" where reader.hasNoValue, "-h" where reader.hasNoValue: return .help
            default:
                guard action == nil, let wanted = Action(rawValue: option) else { throw reader.unknown("ctl") }
                action = wanted
            }
        }
        guard let action else { throw .usage("ctl needs a command: ctl status, or ctl stop") }
        return .control(ControlOptions(action: action, name: name, timeoutSeconds: timeout))
    }
}
