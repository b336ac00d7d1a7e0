// The code of docs/observing.md, and of docs/pitfalls.md about warnings, compiled and run, and the server of its pictures.

import EventLoop
import EventLoopObserving
import EventLoopSupervisor
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct DocumentedObserving {
    @Test func `a signal begins a recording of every loop, and the next one ends it`() async {
        await #expect(processExitsWith: .success) {
            letThrough(SIGUSR1)
            let pages = Box<[String: String]>([:])
            let save: @Sendable (String, String) -> Void = { text, name in pages.change { $0[name] = text } }
            let worker = try RunLoopThread(name: "worker")
            try onFreshThread { mainLoop in
                let loops = [(name: "main", loop: mainLoop), (name: "worker", loop: worker.runLoop)]

                let recorder = try RunLoop.SignalSource(signal: SIGUSR1, label: "recorder") { _, _ in
                    guard loops.allSatisfy({ $0.loop.isRecording }) else {
                        for (_, loop) in loops { loop.startRecording() }
                        return
                    }
                    let recordings = loops.compactMap { name, loop in loop.stopRecording().map { (name: name, recording: $0) } }
                    save(RunLoop.Recording.timelineHTML(title: "Server", recordings), "timeline.html")
                    save(RunLoop.Recording.traceEventJSON(recordings), "timeline.json")
                }
                mainLoop.add(recorder, forMode: .common)

                raiseHere(SIGUSR1)
                while !worker.runLoop.isRecording { _ = mainLoop.run(for: patience, returnAfterSourceHandled: true) }
                mainLoop.perform { worker.runLoop.perform(file: "slow.swift", line: 7) { mainLoop.stop() } }
                _ = mainLoop.run(for: patience)
                raiseHere(SIGUSR1)
                while worker.runLoop.isRecording { _ = mainLoop.run(for: patience, returnAfterSourceHandled: true) }
            }
            worker.stop()
            #expect(await worker.join(timeout: patience))
            #expect(pages.value.keys.sorted() == ["timeline.html", "timeline.json"])
            for text in pages.value.values { #expect(text.contains("recorder") && text.contains("slow.swift:7")) }
        }
    }

    @Test func `the picture of a slow server names the line that makes it slow`() throws {
        let folder = getenv("EVENTLOOP_PICTURES").map { String(cString: $0) }
        let recordings = try SlowServer.recorded(isLong: folder != nil)
        let server = recordings[1].recording
        let report = try #require(server.events.first { $0.label == "usage report" })
        #expect(report.kind == .timer)
        #expect(report.createdAt?.hasPrefix("EventLoopTests/DocumentedObserving.swift:") == true)
        let page = RunLoop.Recording.timelineHTML(title: "A slow server", recordings)
        #expect(page.contains("usage report"))
        // A request crosses three threads: there are arrows from each to the next.
        let trace = try readTrace(RunLoop.Recording.traceEventJSON(recordings))
        #expect(Set(trace.filter { $0.phase == "s" }.map(\.thread)).isSuperset(of: [2, 3]))
        #expect(Set(trace.filter { $0.phase == "f" }.map(\.thread)).isSuperset(of: [2, 3]))
        guard let folder else { return }
        try writeFile(folder + "/server.html", page)
        try writeFile(folder + "/server.json", RunLoop.Recording.traceEventJSON(recordings))
    }
}

/// A server that answers each request on one thread, after a search on another. Now and then it computes a report between two requests.
private enum SlowServer {
    static func recorded(isLong: Bool) throws -> [(name: String, recording: RunLoop.Recording)] {
        let (requests, answers, done, reported) = (Pipe(), Box(0), Gate(), Gate())
        let requestCount = isLong ? 300 : 8
        let search = try RunLoopThread(name: "search")
        let server = try RunLoopThread(
            name: "server",
            setup: { loop in
                let client = try RunLoop.DescriptorSource(descriptor: requests.readEnd, events: .read, label: "client") { _, _ in
                    for byte in drain(requests.readEnd).utf8 {
                        work(.microseconds(60))
                        search.runLoop.perform {
                            work(.microseconds(150 + 40 * Int(byte % 13)))
                            loop.perform {
                                work(.microseconds(40))
                                if answers.increment() == requestCount { done.open() }
                            }
                        }
                    }
                }
                loop.add(client)
                loop.add(RunLoop.Timer(every: .milliseconds(5), label: "heartbeat") { _ in work(.microseconds(25)) })
                loop.add(
                    RunLoop.Timer(every: .milliseconds(isLong ? 270 : 3), label: "usage report") { _ in
                        work(.milliseconds(isLong ? 48 : 5))
                        reported.open()
                    })
            })
        let threads = [
            (name: "clients", thread: try RunLoopThread(name: "clients")), (name: "server", thread: server),
            (name: "search", thread: search),
        ]
        for (_, thread) in threads { thread.runLoop.startRecording() }
        let unsent = Box(requestCount)
        threads[0].thread.runLoop.add(
            RunLoop.Timer(every: .milliseconds(isLong ? 3 : 1), label: "next client") { timer in
                requests.write(String(UnicodeScalar(UInt8(32 + unsent.value * 7 % 90))))
                unsent.value -= 1
                if unsent.value == 0 { timer.invalidate() }
            })
        done.wait()
        reported.wait()
        defer { for (_, thread) in threads { thread.stop(); thread.join() } }
        return threads.compactMap { name, thread in thread.runLoop.stopRecording().map { (name: name, recording: $0) } }
    }

    /// Uses the processor, as slow code does.
    private static func work(_ duration: Duration) {
        let end = RunLoop.Instant.now + duration
        while .now < end {}
    }
}

/// Compiled, and never called: the watchdog and the service manager have tests of their own.
private enum CompiledOnly {
    static func watchdog(_ group: RunLoopThreadGroup, log: @escaping @Sendable (String) -> Void) -> RunLoop.Watchdog {
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(250)) { stall in
            let item = "\(stall.kind) \(stall.label ?? "") of \(stall.createdAt ?? "?")"
            log("\(stall.loopName ?? "a loop"): \(item) takes \(stall.duration), \(stall.processorTime) of it on a processor")
            for line in stall.summary { log(line) }
        }
        watchdog.watch(.main)
        for loop in group.runLoops { watchdog.watch(loop) }
        return watchdog
    }

    static func warnings(log: @escaping @Sendable (String) -> Void) {
        RunLoop.setWarningHandler { warning in
            log("\(warning.kind): \(warning)")
        }
    }

    static func supervisor(serve: @escaping @Sendable (Int32) -> Void) throws -> RunLoop.Supervisor {
        let supervisor = try RunLoop.Supervisor()
        let group = try RunLoopThreadGroup(count: 4, name: "server")
        for (number, socket) in supervisor.sockets(named: "http").enumerated() where socket.kind == .listener {
            let loop = group.runLoops[number % 4]
            loop.add(try RunLoop.SocketSource(adoptingListener: socket.descriptor) { _, descriptor, _ in serve(descriptor) })
        }
        try supervisor.watch(group.runLoops)
        try supervisor.notifyReady(status: "serving")
        return supervisor
    }
}

private func writeFile(_ path: String, _ text: String) throws {
    let file = try #require(fopen(path, "w"))
    defer { fclose(file) }
    #expect(fputs(text, file) >= 0)
}
