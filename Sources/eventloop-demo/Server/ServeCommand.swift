// `eventloop-demo serve`, from beginning to end, on the main thread's run loop.
//
// The server loops serve. The main loop takes signals and messages of `ctl`, and reads the counters once a second. At the end each server
// loop accepts no more, answers its requests in progress (for at most a while), and frees its evhttp on its thread. Meanwhile the main loop
// still serves `ctl`, and then it notifies those who wait.

import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

final class ServeCommand {
    private let options: ServeOptions
    private let terminal: Terminal
    private let main = RunLoop.main
    private let board = StatusBoard()
    private let trouble = TroubleLog()
    private let recorder = LoopRecorder()
    private var watchdog: RunLoop.Watchdog?
    private var server: Server?
    private var sampler: Sampler?
    private var control: ControlPort?
    private var signals: [RunLoop.SignalSource] = []
    private var stopTimer: RunLoop.Timer?
    private var progressTimer: RunLoop.Timer?
    /// When a server loop is stuck, because one of its handlers does not return.
    private var deadline = RunLoop.Instant.distantFuture
    /// Whether every server loop has ended; nil until they have, or the deadline has passed.
    private var hasStopped: Bool?

    init(options: ServeOptions, terminal: Terminal) {
        (self.options, self.terminal) = (options, terminal)
    }

    func perform() throws(DemoError) {
        Process.ignoreBrokenPipes()
        _ = Process.descriptorLimit
        // Before the server accepts: from here on, a signal ends it in order.
        try watchSignals()
        let server = try Server(
            port: options.port, loops: options.loops, drainLimit: .seconds(options.drainSeconds), inbox: nil, pages: pages)
        self.server = server
        do throws(DemoError) {
            let name = options.name ?? ServerDirectory.name(port: server.port)
            control = try ControlPort(name: name, delegate: self)
            startSampling(server, name: name)
            watchLoops(Report.named(main: main, servers: server.loops))
        } catch {
            _ = server.stop()
            throw error
        }
        greet(server)
        while hasStopped == nil { main.run() }  // ends: when the last server loop has ended, or at the deadline
        try end(server)
    }

    // MARK: Starting

    private var pages: Pages {
        Pages(
            statistics: { [board] in board.status.map { StatusTable.text(of: $0) + "\n" } ?? "The server is starting.\n" },
            status: (
                page: { StatusPage.html },
                json: { [board, trouble] in board.status.map { StatusJSON.text(of: $0, trouble) } ?? "{}\n" }
            ), recorder: recorder)
    }

    /// Collects the library's warnings and callouts that take longer than a quarter of a second, and lets clients record the loops.
    private func watchLoops(_ named: [Report.NamedLoop]) {
        recorder.setLoops(named)
        trouble.setLoops(named)
        RunLoop.setWarningHandler { [trouble] in trouble.add($0) }
        let here = LoopBound(self)
        let watchdog = RunLoop.Watchdog { [trouble, main] stall in
            let line = trouble.add(stall)
            // The terminal belongs to the main thread.
            main.perform { here.value.say(line) }
        }
        for (_, loop) in named {
            watchdog.watch(loop)
            // The first read has the loop find them.
            _ = loop.statistics.slowestCallouts
        }
        self.watchdog = watchdog
    }

    private func startSampling(_ server: Server, name: String) {
        let mainCounters = HostCounters()
        mainCounters.noteThread()
        let loops = zip(server.loops, server.counters).enumerated().map { ("http-\($0.offset)", $0.element.0, $0.element.1) }
        let status = ServerStatus(name: name, url: server.url, processID: Process.id, startedAt: .now)
        let sampler = Sampler(status: status, loops: [("main", main, mainCounters)] + loops, board: board)
        sampler.start()
        self.sampler = sampler
    }

    private func greet(_ server: Server) {
        let palette = terminal.palette
        terminal.line("serving \(palette.cyan(server.url)) on \(Format.count(options.loops, "run loop"))")
        terminal.line("status page \(palette.cyan(server.url + "status"))")
        terminal.line("control it with: eventloop-demo ctl status|stop --name \(control?.name ?? "")")
        terminal.flush()
    }

    // MARK: Stopping

    /// The first SIGINT or SIGTERM begins the end. Further SIGTERMs change nothing.
    private func watchSignals() throws(DemoError) {
        let here = LoopBound(self)
        for (signal, name) in [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")] {
            do {
                let source = try RunLoop.SignalSource(signal: signal, label: name) { _, _ in here.value.beginStopping(because: name) }
                main.add(source, forMode: .common)
                signals.append(source)
            } catch {
                throw DemoError(sentence: "cannot watch \(name): \(error)")
            }
        }
    }

    /// Lets the next SIGINT end the process at once, whatever the main loop does: invalidating the source restores the default action.
    ///
    /// Not immediately: one Ctrl-C may arrive twice, because programs such as timeout(1) pass it on to a process group that has it already.
    private func restoreInterrupt() {
        let here = LoopBound(self)
        main.perform(after: .milliseconds(200)) { here.value.signals[0].invalidate() }
    }

    /// Stops the server loops, the first time, and checks whether they have ended. Waits for none of them, because the main loop has
    /// other things to do.
    private func stopServer() {
        let haveEnded = server?.stop(timeout: .zero) ?? true
        guard haveEnded || RunLoop.Instant.now >= deadline else { return }
        hasStopped = haveEnded
        main.stop()
    }

    private func say(_ sentence: String) {
        terminal.line(sentence)
        terminal.flush()
    }

    /// Notifies those who wait, and the terminal.
    private func end(_ server: Server) throws(DemoError) {
        stopTimer?.invalidate()
        progressTimer?.invalidate()
        watchdog?.invalidate()
        RunLoop.setWarningHandler(nil)
        sampler?.stop()
        let requests = server.counters.reduce(0) { $0 + $1.requests.value }
        let unanswered = server.counters.reduce(0) { $0 + $1.unanswered.value }
        let sentence =
            unanswered == 0
            ? "stopped: \(Format.count(requests, "request")), all answered"
            : "stopped: \(Format.count(unanswered, "request")) got no answer within \(Format.count(options.drainSeconds, "second"))"
        control?.announce(unanswered == 0 ? ControlMessage.stopped : ControlMessage.stoppedUnanswered, sentence)
        control?.close()
        for source in signals { source.invalidate() }
        guard hasStopped == true else { throw DemoError(sentence: "a server loop does not stop; one of its handlers does not return") }
        guard unanswered == 0 else { throw DemoError(sentence: sentence) }
        say(sentence)
    }
}

extension ServeCommand: ControlPort.Delegate {
    var status: ServerStatus { sampler!.status }  // there is one before the loop runs

    func beginStopping(because reason: String) {
        guard stopTimer == nil else { return }
        restoreInterrupt()
        sampler?.show(.draining)
        say("\(reason): accepting no more connections; \(StatusTable.waiting(status))")
        deadline = .now + .seconds(options.drainSeconds + 5)
        let here = LoopBound(self)
        let stop = RunLoop.Timer(every: .milliseconds(10), label: "stop") { _ in here.value.stopServer() }
        let progress = RunLoop.Timer(every: .seconds(1), label: "progress") { _ in
            here.value.control?.announce(ControlMessage.progress, StatusTable.waiting(here.value.status))
        }
        main.add(stop)
        main.add(progress)
        (stopTimer, progressTimer) = (stop, progress)
        stopServer()
    }
}
