// The server of README.md. ProgramTests start it, talk to it, and stop it.

import EventLoop
import EventLoopStreams

@main
enum EchoServer {
    static func main() async throws {
        RunLoop.adoptAsyncMain()
        // Signals are counted from here on, so this comes before the server.
        var terminations = RunLoop.main.signals(15).makeAsyncIterator()
        let port = CommandLine.arguments.dropFirst().first.flatMap { UInt16($0) } ?? 8080

        // Each connection is a task on the loop's thread. `write` waits while the client reads too slowly.
        let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: port), on: [.main]) { stream in
            do {
                for try await line in stream.lines(limit: 1_000) { try await stream.write("you said \(line)\n") }
            } catch { if !Task.isCancelled { print("a client is gone: \(error)") } }
        }
        print("listening on \(server.localAddress)")
        RunLoop.main.add(RunLoop.Timer(every: .seconds(5)) { _ in print("\(server.connections) connections") })

        // SIGTERM: clients have five seconds to finish.
        _ = try await terminations.next()
        await server.shutdown(grace: .seconds(5))
    }
}
