// The server of both commands: threads with a loop each, and a task for each connection on one of them.

import EventLoop
import EventLoopStreams
import Synchronization

final class LineServer: Sendable {
    let loops: [RunLoop]
    let address: RunLoop.SocketAddress
    private let threads: RunLoopThreadGroup
    private let server: StreamServer
    private let counters: Counters

    /// Tasks on every loop count here.
    private final class Counters: Sendable {
        let answered = Atomic(0)
        let cutOff = Atomic(0)
    }

    init(port: Int, loops count: Int) throws {
        let counters = Counters()
        self.counters = counters
        threads = try RunLoopThreadGroup(count: count, name: "server")
        loops = threads.runLoops
        server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: UInt16(port)), on: loops) { stream in
            do {
                for try await line in stream.lines(limit: 1_000) {
                    try await stream.write(try await LineServer.answer(to: line) + "\n")
                    counters.answered.add(1, ordering: .relaxed)
                }
            } catch {
                // The client broke off. Or the grace of a shutdown is over.
                if Task.isCancelled { counters.cutOff.add(1, ordering: .relaxed) }
            }
        }
        address = server.localAddress
    }

    /// With the names of their threads.
    var named: [(name: String, loop: RunLoop)] { loops.enumerated().map { ("server-\($0.offset)", $0.element) } }
    var connections: Int { server.connections }
    var answered: Int { counters.answered.load(ordering: .relaxed) }
    /// The connections that a shutdown has cut off.
    var cutOff: Int { counters.cutOff.load(ordering: .relaxed) }

    /// Accepts no more, lets the clients finish, and joins the threads.
    func shutdown(grace: Duration) async {
        await server.shutdown(grace: grace)
        await threads.shutdown()
    }

    private static func answer(to line: String) async throws -> String {
        let words = line.split(separator: " ")
        guard let delay = words.last.flatMap({ Int($0) }), (0...60_000).contains(delay) else { return "you said \(line)" }
        switch words.first {
        case "slow": try await Task.sleep(for: .milliseconds(delay))  // the loop serves others meanwhile
        case "stall":  // what a server must not do: the loop serves nobody, and the watchdog finds it
            let end = RunLoop.Instant.now + .milliseconds(delay)
            while RunLoop.Instant.now < end {}
        default: return "you said \(line)"
        }
        return "\(delay) ms later"
    }
}
