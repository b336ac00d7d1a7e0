// The demo from beginning to end, on the main thread's run loop.
//
// `perform` has the whole demo in order. Everything here belongs to the main thread; handlers access it through
// a `LoopBound`.

import EventLoop

final class Conductor {
    private let options: DriveOptions
    private let narrator: Narrator
    private let main = RunLoop.main
    private let recorder = Recorder()
    private let loopRecorder = LoopRecorder()
    private var inbox: Inbox?
    private var load: Load?
    private var tickTimer: RunLoop.Timer?

    private var isInterrupted = false
    private var isDriving = false
    private var secondsDriven = 0
    /// The number of ticks since the demo began to wait for the last answers.
    private var ticksSinceFinish = 0

    /// The number of requests of other clients that have been shown.
    private var visitorsShown: UInt64 = 0
    /// Reports of the server loops: requests by loop number, and the delay of the reports.
    private var answeredByHost: [Int: UInt64] = [:]
    private var batchesThisSecond = 0
    private var batches = 0
    private var handOver = Latency()

    private static let clientsPerLoop = 4

    init(options: DriveOptions, terminal: Terminal) {
        self.options = options
        narrator = Narrator(terminal: terminal)
    }

    func perform() throws(DemoError) {
        Process.ignoreBrokenPipes()
        Process.stopMainLoopOnInterrupt()
        let inbox = openInbox()
        let loops = Locked<[RunLoop]>([])
        let pages = Pages(statistics: reportForVisitors(loops), status: nil, recorder: nil)
        let server = try Server(port: options.port, loops: options.loops, drainLimit: .seconds(2), inbox: inbox, pages: pages)
        loops.withLock { $0 = server.loops }
        loopRecorder.setLoops(Report.named(main: main, servers: server.loops))
        narrator.greet(url: server.url, loops: options.loops)
        startTicking()
        if options.seconds > 0 {
            try drive(server)
            if let (pass, count) = recorder.typicalPass() {
                narrator.timeline(pass, among: count, recorder: recorder)
            }
            narrator.statistics(of: Report.named(main: main, servers: server.loops))
            writeTimeline()
        }
        if options.isForever, !isInterrupted {
            narrator.serving(url: server.url)
            main.run()
            narrator.statistics(of: Report.named(main: main, servers: server.loops))
        }
        try stopEverything(server)
    }

    // MARK: Starting

    private func openInbox() -> Inbox {
        let here = LoopBound(self)
        let inbox = Inbox(label: "inbox") { batches in here.value.take(batches) }
        inbox.add(to: main)
        self.inbox = inbox
        return inbox
    }

    private func startTicking() {
        let here = LoopBound(self)
        let timer = RunLoop.Timer(every: .seconds(1), label: "tick") { _ in here.value.tick() }
        main.add(timer)
        tickTimer = timer
    }

    /// The text of /statistics, made on a server loop.
    private func reportForVisitors(_ servers: Locked<[RunLoop]>) -> @Sendable () -> String {
        { [main] in
            let loops = Report.named(main: main, servers: servers.withLock { $0 })
            return Report.statistics(of: loops, palette: .plain).joined(separator: "\n") + "\n"
        }
    }

    // MARK: Driving

    /// The Guide's Listing 3-2: run until a source was handled, check, run again. Each run is one whole pass from
    /// entry to exit, as the recorder needs it.
    private func drive(_ server: Server) throws(DemoError) {
        let clients = options.loops * Conductor.clientsPerLoop
        narrator.beginDriving(clients: clients, seconds: options.seconds)
        recorder.start()
        _ = loopRecorder.start()
        let load = Load(port: server.port, recorder: recorder)
        self.load = load
        isDriving = true
        do throws(DemoError) {
            try load.start(connections: clients)
        } catch {
            _ = server.stop()
            throw error
        }
        // Ends: at its last tick the timer makes the load finish, and three ticks later give up.
        while !load.isDone {
            if main.run(for: .seconds(1), returnAfterSourceHandled: true) == .stopped {
                // Ctrl-C, or the reader of our output is gone. Requests in flight are still awaited.
                isInterrupted = true
                secondsDriven = options.seconds
                load.finish()
            }
        }
        isDriving = false
        recorder.stop()
    }

    /// The newest events of all loops, in a page that explains them.
    private func writeTimeline() {
        let recordings = loopRecorder.stop()
        let path = TimelineFile.write(LoopRecorder.page("eventloop-demo", recordings), to: options.timeline)
        narrator.wroteTimeline(to: path, events: recordings.reduce(0) { $0 + $1.recording.events.count })
    }

    /// The timer's handler, once a second.
    private func tick() {
        recorder.handling(.timer)
        if isDriving, let load {
            tickWhileDriving(load)
        } else if visitors > visitorsShown {
            narrator.visited(visitors - visitorsShown, of: visitors)
            visitorsShown = visitors
        }
        batchesThisSecond = 0
        if narrator.terminal.isBroken { main.stop(sticky: true) }
    }

    private func tickWhileDriving(_ load: Load) {
        guard secondsDriven < options.seconds else {
            // The load is finishing, and some answers are still missing.
            ticksSinceFinish += 1
            if ticksSinceFinish == 3 { load.abandon() }
            return
        }
        secondsDriven += 1
        narrator.second(secondsDriven, total: load.answers, latency: load.takeSecond(), batches: batchesThisSecond)
        if secondsDriven == options.seconds {
            if secondsDriven > 1 {
                narrator.allSeconds(secondsDriven, total: load.answers, latency: load.latency, batches: batches)
            }
            load.finish()
        }
    }

    /// Requests of other clients: curl in another terminal.
    private var visitors: UInt64 {
        let answered = answeredByHost.values.reduce(0, +)
        // Our own last batches may still be in flight.
        return answered - min(answered, load?.answers ?? 0)
    }

    /// The inbox's handler: reports of other threads since the last call.
    private func take(_ batches: [Inbox.Batch]) {
        recorder.performing(.batches(batches.count))
        let now = RunLoop.Instant.now
        for batch in batches {
            answeredByHost[batch.host, default: 0] += batch.requests
            handOver.record(Format.nanoseconds(of: batch.handedOverAt.duration(to: now)))
        }
        self.batches += batches.count
        batchesThisSecond += batches.count
    }

    // MARK: Stopping

    /// Stops the clients first, then the servers, handles their last reports, and then removes the main loop's own items.
    private func stopEverything(_ server: Server) throws(DemoError) {
        narrator.beginStopping()
        if let load {
            narrator.stopped("clients", "\(Format.grouped(UInt64(load.connectionsMade))) connections made, all closed")
        }
        guard server.stop() else { throw DemoError(sentence: "a server loop did not stop within five seconds") }
        let threads = Format.count(options.loops, "thread")
        narrator.stopped("servers", "each evhttp freed on its own thread, \(threads) joined")
        // The teardowns have sent the last batches; a pass that does not wait takes them. A signal in the meantime
        // ends one run. There are at most two (SA_RESETHAND), so this ends.
        while main.run(for: .zero) == .stopped {}
        inbox?.close()
        let way = "median \(Format.duration(nanoseconds: handOver.median)) on the way"
        narrator.stopped("inbox", "\(Format.count(batches, "batch", plural: "batches")) from other threads, \(way)")
        tickTimer?.invalidate()
        narrator.stopped("main", "timer, observer and sources gone")
        narrator.settle(answeredByHost: answeredByHost, received: load?.answers, visitors: visitors)
        if let load, load.failures > 0 {
            let reason = load.firstFailure ?? ""
            throw DemoError(sentence: "\(Format.count(load.failures, "request")) failed; the first: \(reason)")
        }
    }
}
