// The code of docs/kernel-sources.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both. The code that starts a child process
// is in DocumentedChildProcesses.swift, because it uses streams.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.memory)) struct DocumentedKernelSources {
    @Test func `a signal stops a server, and a configuration is read again`() async {
        await #expect(processExitsWith: .success) {
            letThrough(SIGTERM, SIGHUP)
            let trace = Trace()
            try onFreshThread { loop in
                let server = "server"
                let stop: @Sendable (String) -> Void = { _ in
                    trace.add("stopped")
                    loop.stop()
                }
                let source = try RunLoop.SignalSource(signal: SIGTERM) { source, count in
                    source.invalidate()
                    stop(server)
                }
                loop.add(source, forMode: .common)
                raiseHere(SIGTERM)
                _ = loop.run(for: patience)
            }
            #expect(trace.description == "stopped")
            try await withLoopThread { thread in
                let server = Server()
                let task = Task { try await reread(server, on: thread.runLoop) }
                try await suspendUntil("the task watches SIGHUP") { thread.runLoop.debugDescription.contains("signal \(SIGHUP)") }
                try plainThread {
                    // After an await this may be another thread of the pool, which blocks signals.
                    letThrough(SIGHUP)
                    raiseHere(SIGHUP)
                }.join()
                try await suspendUntil("the configuration is read") { server.readings.value > 0 }
                task.cancel()
                try await task.value
            }
        }
    }

    @Test func `a child's end is reported`() throws {
        try onFreshThread { loop in
            let said = Trace()
            let report: @Sendable (String) -> Void = { said.add($0) }
            let child = spawn("exit 3")
            let source = try RunLoop.ProcessSource(pid: child) { _, status in
                switch status {
                case .exited(let code): report("ended with \(code)")
                case .signaled(let signal, _): report("killed by signal \(signal)")
                }
            }
            loop.add(source)
            #expect(loop.run(for: patience) == .finished)
            #expect(said.description == "ended with 3")
        }
    }

    @Test func `a listener serves a connection`() throws {
        try onFreshThread { loop in
            let said = Trace()
            let report: @Sendable (String) -> Void = { said.add($0) }
            let serve: @Sendable (Int32, SocketAddress) -> Void = { descriptor, _ in
                close(descriptor)
                said.add("served")
                loop.stop()
            }
            let talk: @Sendable (Int32) -> Void = { descriptor in
                said.add("talked")
                close(descriptor)
            }
            let listener = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, descriptor, peer in
                serve(descriptor, peer)
            }
            loop.add(listener)
            report("listening on \(listener.localAddress!)")
            let address = listener.localAddress!
            let source = try RunLoop.SocketSource(connectingTo: address, timeout: .seconds(5)) { _, result in
                switch result {
                case .success(let descriptor): talk(descriptor)
                case .failure(let error): report("\(error)")
                }
            }
            loop.add(source)
            _ = loop.run(for: patience)
            _ = loop.run(for: .zero)
            listener.invalidate()
            #expect(Set(said.list) == ["listening on \(address)", "served", "talked"])
        }
    }

    @Test func `a task serves connections`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let served = Box(0)
            let task = Task {
                try await serveAll(loop) { descriptor in
                    close(descriptor)
                    served.increment()
                }
            }
            var port: UInt16?
            try await suspendUntil("the task listens") {
                let found = loop.debugDescription.split(separator: "listener on 127.0.0.1:").dropFirst().first
                port = found.flatMap { UInt16($0.prefix { $0.isNumber }) }
                return port != nil
            }
            for number in 1...3 {
                close(connectedClient(to: .ipv4(host: "127.0.0.1", port: port!)))
                try await suspendUntil("connection \(number) is served") { served.value >= number }
            }
            task.cancel()
            try await task.value
        }
    }
}

private final class Server: Sendable {
    let readings = Box(0)
    func readConfiguration() async throws { readings.increment() }
}

private func reread(_ server: Server, on loop: RunLoop) async throws {
    for try await _ in loop.signals(SIGHUP) {
        try await server.readConfiguration()
    }
}

private func serveAll(_ loop: RunLoop, _ serve: @Sendable (Int32) async -> Void) async throws {
    let connections = try loop.connections(listeningOn: .ipv4(host: "127.0.0.1", port: 0))
    for try await connection in connections {
        await serve(connection.descriptor)
    }
}
