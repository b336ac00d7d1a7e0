// A chat server. A line is a message that everybody gets; the first line of a connection is its name.
//
//   chat-server [PORT | PATH]      on the loopback, or on a Unix socket; ends with SIGTERM
//
// Nobody waits for a slow reader: `send` only queues, and a member for whom 64 KiB are queued is disconnected.

import EventLoop
import EventLoopStreams

/// On the loop, like the tasks of its members: their calls change no thread.
actor Room {
    private let loop: RunLoop
    private var members: [String: ByteStream] = [:]
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    init(on loop: RunLoop) { self.loop = loop }

    /// Returns when the connection has ended.
    func serve(_ stream: ByteStream) async {
        var name: String?
        stream.send("Your name?\n")
        do {
            for try await line in stream.lines(limit: 1_000) {
                if let name {
                    announce("\(name): \(line)")
                } else if line.isEmpty || members[line] != nil {
                    stream.send("Another name?\n")
                } else {
                    name = line
                    members[line] = stream
                    announce("* \(line) has come")
                }
            }
        } catch {}  // the connection broke, was too slow, or sent too long a line
        guard let name else { return }
        members[name] = nil
        announce("* \(name) has gone")
    }

    private func announce(_ text: String) {
        for member in members.values where !member.send(text + "\n") { member.close() }
    }
}

@main
enum ChatServer {
    static func main() async throws {
        RunLoop.adoptAsyncMain()
        let place = CommandLine.arguments.dropFirst().first ?? "7000"
        let address = UInt16(place).map { RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: $0) } ?? .unix(path: place)
        let room = Room(on: .main)
        // Signals are counted from here on, so this comes before the server.
        var terminations = RunLoop.main.signals(15).makeAsyncIterator()
        let server = try StreamServer(listeningOn: address, on: [.main], connectionLimit: 1_000) { await room.serve($0) }
        print("listening on \(server.localAddress)")
        _ = try await terminations.next()
        await server.shutdown(grace: .zero)
    }
}
