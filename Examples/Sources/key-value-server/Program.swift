// A key-value store that speaks the protocol of Redis, for redis-cli and redis-benchmark.
//
//   key-value-server [PORT | PATH [tasks | handlers]]      on the loopback, or on a Unix socket; 7000, tasks
//
// GET, SET, DEL and PING. A client that pipelines sends many commands together: whatever has come completely is answered with one `write`, or
// one `send`. SIGTERM ends the server.

import EventLoop
import EventLoopStreams

@main
enum KeyValueServer {
    static func main() async throws {
        RunLoop.adoptAsyncMain()
        let words = Array(CommandLine.arguments.dropFirst())
        let place = words.first ?? "7000"
        let way = words.count > 1 ? words[1] : "tasks"
        guard ["tasks", "handlers"].contains(way) else { return print("usage: key-value-server [PORT | PATH [tasks | handlers]]") }
        let address = UInt16(place).map { RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: $0) } ?? .unix(path: place)

        // Counting begins with the iterator. It is made before the server accepts, so that a SIGTERM that comes early is not lost.
        var terminations = RunLoop.main.signals(15).makeAsyncIterator()
        // All connections are on the main loop, and so are the keys.
        let store = LoopBound(Store())
        if way == "tasks" {
            let server = try StreamServer(listeningOn: address, on: [.main], connectionLimit: 1_000) { await serve($0, store) }
            print("listening on \(server.localAddress)")
            _ = try await terminations.next()
            await server.shutdown(grace: .seconds(1))
        } else {
            let listener = try RunLoop.SocketSource(listeningOn: address) { _, descriptor, _ in serve(descriptor, store) }
            RunLoop.main.add(listener)
            print("listening on \(listener.localAddress.map { "\($0)" } ?? place)")
            _ = try await terminations.next()
            listener.invalidate()
        }
    }

    /// A task of the server, on the main loop's thread. Returns when the connection has ended.
    private static func serve(_ stream: ByteStream, _ store: LoopBound<Store>) async {
        do {
            for try await batch in stream.frames(BatchFraming()) {
                try await stream.write(store.withValue { $0.answers(to: batch) })
            }
        } catch {}  // the connection broke, or sent what is no command
    }

    /// The same without a task. The stream retains its handlers, and lives until it has ended.
    private static func serve(_ descriptor: Int32, _ store: LoopBound<Store>) {
        // A client that has reset its connection already makes this throw; the descriptor is closed then.
        guard let stream = try? ByteStream(adopting: descriptor, on: .main) else { return }
        stream.onReceive { stream, bytes in
            do {
                guard let batch = try Batch(takenFrom: &bytes) else { return }
                // A client that reads no answers waits, as one of a task does.
                if !stream.send(store.withValue { $0.answers(to: batch) }) { stream.isReading = false }
            } catch { stream.close() }
        }
        stream.onRoom { $0.isReading = true }
    }
}
