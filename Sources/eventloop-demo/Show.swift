// `make run`, from beginning to end, on the main thread's run loop.

import EventLoop
import EventLoopObserving

/// Belongs to the main thread. Handlers get at it through a `LoopBound`.
final class Show {
    private let main = RunLoop.main
    private let seconds: Int
    private let path: String?
    private let server: LineServer
    private let recorder = PassRecorder()
    private var clients: Clients?
    private var secondsGone = 0

    init(_ arguments: inout Arguments) throws {
        try arguments.readOptions("loops", "seconds", "timeline")
        seconds = try arguments.number("seconds", 1...3600, default: 3)
        path = arguments.text("timeline")
        server = try LineServer(port: 0, loops: arguments.number("loops", 1...64, default: 2))
    }

    func perform() throws {
        let count = 4 * server.loops.count
        say("\n  EventLoop: Apple's run-loop model on libevent\n")
        say("  A server on \(counted(server.loops.count, "loop")), \(server.address), and \(count) clients on the main loop\n")
        say("  second   answers       median          p99      longest")
        for (_, loop) in loops { loop.startRecording(capacity: 8_192) }
        recorder.start()
        let clients = try Clients(count, of: server.address, recorder: recorder)
        self.clients = clients
        let here = LoopBound(self)
        let timer = RunLoop.Timer.scheduled(every: .seconds(1), label: "second") { _ in here.value.tick() }
        // The Guide's Listing 3-2: run until a source was handled, look, run again. Ends: the timer has the clients finish.
        while !clients.areDone { _ = main.run(for: .seconds(1), returnAfterSourceHandled: true) }
        recorder.stop()
        try report()
        stopServer()
        timer.invalidate()
        say("  \(grouped(server.answered)) answered, \(grouped(clients.answers)) received. The server's threads have ended.\n")
        if let failure = clients.failure { throw Failure(failure) }
    }

    private var loops: [(name: String, loop: RunLoop)] { [("main", main)] + server.named }

    /// The timer's handler.
    private func tick() {
        guard let clients, secondsGone < seconds else { return }
        secondsGone += 1
        let second = clients.takeSecond()
        let latencies = [second.percentile(50), second.percentile(99), second.maximum].map { short($0).aligned(13) }.joined()
        say("  \(secondsGone)".padded(8) + grouped(second.count).aligned(10) + latencies)
        if secondsGone == seconds { clients.finish() }
    }

    private func report() throws {
        if let picture = recorder.picture() { say("\n  One pass of the main loop\n\n" + picture) }
        say("\n  What each loop has done\n\n" + table(of: loops))
        let recordings = loops.compactMap { name, loop in loop.stopRecording().map { (name: name, recording: $0) } }
        let file = try writeFile(RunLoop.Recording.timelineHTML(title: "eventloop-demo", recordings), to: path)
        say("\n  What each loop did, callout by callout, in a page for a browser\n\n  \(file)\n")
    }

    /// The main loop runs until the task has ended.
    private func stopServer() {
        Task { [server, main] in
            await server.shutdown(grace: .seconds(5))
            // Sticky: if the loop does not run yet, the stop is kept for its next run.
            main.stop(sticky: true)
        }
        main.run()
    }
}
