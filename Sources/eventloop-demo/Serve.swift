// `eventloop-demo serve`: the server's loops serve, and the main loop takes signals and the messages of `ctl`.

import EventLoop
import EventLoopMessagePorts
import EventLoopObserving

/// Belongs to the main thread.
final class Serve {
    static let usualName = "eventloop-demo"
    /// The messages of `ctl`. Each reply is text.
    static let (statusID, stopID): (Int32, Int32) = (1, 2)

    private let main = RunLoop.main
    private let name: String
    private let grace: Duration
    private let server: LineServer
    private var isStopping = false

    init(_ arguments: inout Arguments) throws {
        try arguments.readOptions("port", "loops", "grace", "name")
        grace = .seconds(try arguments.number("grace", 0...3600, default: 5))
        name = arguments.text("name") ?? Serve.usualName
        server = try LineServer(
            port: arguments.number("port", 0...65_535, default: 8080), loops: arguments.number("loops", 1...64, default: 2))
    }

    func perform() throws {
        let here = LoopBound(self)
        // The first SIGINT or SIGTERM ends the server in order. An invalid source has given the signal its default action back, so the second
        // one ends the process at once.
        for (signal, name) in [(Int32(2), "SIGINT"), (15, "SIGTERM")] {
            let source = try RunLoop.SignalSource(signal: signal, label: name) { source, _ in
                source.invalidate()
                say("\(name): \(here.value.stop())")
            }
            main.add(source)
        }
        let control = try RunLoop.LocalMessagePort(name: name, label: "control") { _, id, _ in here.value.answer(id).map { Array($0.utf8) }
        }
        main.add(control)
        let watchdog = RunLoop.Watchdog { stall in
            say("stall: \(stall.loopName ?? "a loop") has been in \(stall.label ?? stall.kind.rawValue) for \(short(stall.duration))")
            for line in stall.summary { say("    " + line) }
        }
        for (_, loop) in loops { watchdog.watch(loop) }
        say("serving lines at \(server.address) on \(counted(server.loops.count, "loop"))")
        say("control it with: eventloop-demo ctl status|stop --name \(name)")
        main.run()
        watchdog.invalidate()
        // `ctl stop` waits for this.
        control.invalidate()
        let rest = server.cutOff == 0 ? "" : ", \(counted(server.cutOff, "connection")) cut off"
        say("stopped: \(counted(server.answered, "line")) answered\(rest)")
    }

    private var loops: [(name: String, loop: RunLoop)] { [("main", main)] + server.named }

    private func answer(_ id: Int32) -> String? {
        switch id {
        case Serve.statusID:
            let line = "\(name): \(counted(server.connections, "connection")), \(counted(server.answered, "line")) answered"
            return "\(line)\(isStopping ? ", stopping" : "")\n\(table(of: loops))"
        case Serve.stopID: return stop()
        default: return nil
        }
    }

    /// Idempotent. Returns at once; the main loop is stopped when the server has ended.
    private func stop() -> String {
        if !isStopping {
            isStopping = true
            Task { [server, grace, main] in
                await server.shutdown(grace: grace)
                main.stop(sticky: true)
            }
        }
        return "accepting no more, \(counted(server.connections, "connection")) open"
    }
}
