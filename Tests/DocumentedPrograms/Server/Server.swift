// The server of docs/getting-started.md. ProgramTests start it, talk to it, and stop it.

import EventLoop
import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@main
enum Server {
    static func main() throws {
        let loop = RunLoop.main
        let port = CommandLine.arguments.dropFirst().first.flatMap { UInt16($0) } ?? 8080

        // Each connection is a task, which runs on the loop's thread.
        let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: port), on: [loop]) { stream in
            do {
                for try await line in stream.lines(limit: 1_000) { try await stream.write("you said \(line)\n") }
            } catch {
                // When the server shuts down, clients that stay are cut off. That is no failure.
                if !Task.isCancelled { print("a client is gone: \(error)") }
            }
        }
        print("listening on \(server.localAddress)")

        RunLoop.Timer.scheduled(every: .seconds(5)) { _ in print("\(server.connections) connections") }

        // SIGTERM, and SIGINT of Control-C: clients have five seconds to finish. The same signal again ends the process at once.
        for signal in [SIGTERM, SIGINT] {
            let source = try RunLoop.SignalSource(signal: signal) { source, _ in
                source.invalidate()
                Task {
                    await server.shutdown(grace: .seconds(5))
                    loop.stop()
                }
            }
            loop.add(source)
        }

        loop.run()
        print("stopped")
    }
}
