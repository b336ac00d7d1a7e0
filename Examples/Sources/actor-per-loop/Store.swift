// The keys, each owned by the actor of one loop, and what a connection does with them. EventLoopSimulationTests runs this file, too, in orders that
// seeds decide.

import EventLoop
import EventLoopStreams

/// Owns the keys of one loop. Its methods run on that loop's thread and nowhere else.
actor Shard {
    private let loop: RunLoop  // an actor does not retain its executor, so it keeps the loop
    private var values: [String: String] = [:]
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    init(on loop: RunLoop) { self.loop = loop }

    var count: Int { values.count }
    func value(of key: String) -> String? { values[key] }
    func set(_ key: String, to value: String) { values[key] = value }
}

/// What all connections know. It is constant, so every thread may read it.
struct Store: Sendable {
    private let loops: [RunLoop]
    private let shards: [Shard]

    init(on loops: [RunLoop]) {
        self.loops = loops
        shards = loops.map { Shard(on: $0) }
    }

    /// The same actor for the same key, on whatever loop the question is asked.
    private func shard(of key: String) -> Shard { shards[Int(key.hashValue.magnitude % UInt(shards.count))] }

    /// Returns when the connection has ended. `StreamServer` calls this in a task that prefers the connection's loop: everything here that
    /// belongs to no actor runs on that loop's thread.
    func serve(_ stream: ByteStream) async {
        let number = loops.firstIndex { $0 === stream.loop }!  // the server was given these loops
        do {
            try await stream.write("loop \(number + 1) of \(loops.count)\n")
            // One command after the other, so the answers come in the order of the commands. A client that sends many and reads no answers
            // waits: `write` returns when there is room, and until then nothing is read.
            for try await line in stream.lines(limit: 10_000) { try await stream.write(answer(to: line) + "\n") }
        } catch {}  // the connection broke, sent too long a line, or the grace of a shutdown is over
    }

    private func answer(to line: String) async -> String {
        let words = line.split(separator: " ", maxSplits: 2).map(String.init)
        switch (words.first, words.count) {
        case ("GET", 2):
            // If the shard is on this connection's loop, the call enters the actor at once. Otherwise the task suspends, the call runs as
            // a job on the other loop, and the task goes on here.
            return await shard(of: words[1]).value(of: words[1]) ?? "NONE"
        case ("SET", 3):
            await shard(of: words[1]).set(words[1], to: words[2])
            return "OK"
        case ("COUNT", 1):
            // One shard after the other. Others may set keys meanwhile, so this is no picture of a single moment: only what one actor owns
            // can be read in one piece.
            var counts: [Int] = []
            for shard in shards { counts.append(await shard.count) }
            return "\(counts.reduce(0, +)) = \(counts.map(String.init).joined(separator: " + "))"
        default:
            return "GET KEY, SET KEY VALUE, or COUNT?"
        }
    }
}
