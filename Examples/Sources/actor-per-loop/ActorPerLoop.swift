// A key-value store whose keys are spread over several threads. Each thread has a loop, and an actor on it that owns a part of the keys.
//
//   actor-per-loop [PORT | PATH [LOOPS [GRACE]]]      on the loopback, or on a Unix socket; 7000, 4 loops, 5 seconds
//
//   SET KEY VALUE   answers OK
//   GET KEY         answers the value, or NONE
//   COUNT           answers the number of keys: of all, and of each part
//
// No lock anywhere: a part of the keys belongs to one actor, the actor to one loop, and the loop to one thread. A connection may be on
// another loop than the key that it asks for. Then `await` carries the command to the key's thread and the answer back; meanwhile the
// connection's loop serves others. SIGTERM ends the server.

import EventLoop
import EventLoopStreams

@main
enum ActorPerLoop {
    static func main() async throws {
        // The main loop waits for the signal. The connections are on the loops of the group.
        RunLoop.adoptAsyncMain()
        let words = Array(CommandLine.arguments.dropFirst())
        let place = words.first ?? "7000"
        guard let loopCount = words.count > 1 ? Int(words[1]) : 4, let grace = words.count > 2 ? Int(words[2]) : 5, loopCount > 0 else {
            return print("usage: actor-per-loop [PORT | PATH [LOOPS [GRACE]]]")
        }
        let address = UInt16(place).map { RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: $0) } ?? .unix(path: place)

        // Counting begins with the iterator. It is made before the server accepts, so that a SIGTERM that comes early is not lost.
        var terminations = RunLoop.main.signals(15).makeAsyncIterator()
        let group = try RunLoopThreadGroup(count: loopCount, name: "shard")
        let store = Store(on: group.runLoops)
        // The server spreads the connections: the kernel does for TCP, the server itself for a Unix socket.
        let server = try StreamServer(listeningOn: address, on: group.runLoops, connectionLimit: 1_000) { await store.serve($0) }
        print("listening on \(server.localAddress)")
        _ = try await terminations.next()

        // The server first: it accepts no more, lets clients finish for `grace` seconds, and returns when every connection is closed. Only
        // then the threads, because a task of one connection may still await the actor of another loop.
        await server.shutdown(grace: .seconds(grace))
        await group.shutdown()
    }
}
