// W22: 16 requests of 64 bytes arrive together on each of 50 connections, and each is answered by a write of its own. One operation is one
// request.
//
// In `handlers`, `tasks` and `actors` a server on the loopback runs on processor 0 and a client in C on processor 1, as in W14; the figure is the
// processor time of everything but the client. In `pairs-…` the measuring thread writes and reads the peers' ends of 50 socket pairs itself,
// outside what is measured, so that the counts are the server's alone, and exact.

import CPerfPeers
import EventLoop
import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

enum W22Pipelining {
    static let connections = 50
    static let atOnce = Int(PERF_PIPELINED)
    /// The requests that are on their way at once.
    private static let round = connections * atOnce
    private static let warmupRounds = 20

    static var cases: [Case] {
        [
            served("handlers", "a stream's handlers", goal: 1, PipeliningWays.handlers),
            served("tasks", "a task for each stream", goal: 1.5, PipeliningWays.task),
            served("actors", "a task for each stream, which calls an actor on the loop", goal: 1.5, PipeliningWays.taskWithActor),
            paired("pairs-handlers", "a stream's handlers", goal: 1, PipeliningWays.handlers),
            paired("pairs-tasks", "a task for each stream", goal: 1.5, PipeliningWays.task),
            paired("pairs-actors", "a task for each stream, which calls an actor on the loop", goal: 1.5, PipeliningWays.taskWithActor),
        ]
    }

    private static func served(_ id: String, _ who: String, goal: Double, _ way: @escaping EchoWay) -> Case {
        Case(
            "W22.\(id)", "16 requests at once on 50 connections, answered by \(who), processor time a request", metric: .processorTime,
            amount: .upTo(1_000_000), goals: [Goal("bufferevent", ratio: goal)],
            contenders: [
                Contender("eventloop") { ops in
                    W14Streams.serve(
                        connections, messageSize: messageSize, warmup: warmupRounds * connections, batches(ops), way
                    ).counted(batches(ops) * atOnce)
                },
                Contender("bufferevent") { ops in
                    measuredInC(ops: batches(ops) * atOnce) {
                        peer_libevent_stream_echo(
                            PERF_BUFFEREVENT_EACH, Int32(connections), messageSize, warmupRounds * connections, batches(ops), $0)
                    }
                },
            ])
    }

    private static func paired(_ id: String, _ who: String, goal: Double, _ way: @escaping EchoWay) -> Case {
        Case(
            "W22.\(id)", "the same over 50 socket pairs, answered by \(who)", amount: .upTo(2_000_000),
            goals: [Goal("bufferevent", ratio: goal)], gated: [.allocations, .systemCalls],
            contenders: [
                Contender("eventloop") { pairs($0, way) },
                Contender("bufferevent") { ops in
                    measuredInC(ops: ops) {
                        peer_libevent_pipelined_pairs(Int32(connections), warmupRounds, rounds(ops), $0)
                    }.rounded(to: round)
                },
            ])
    }

    /// What the client counts as one message is all that it sends together.
    private static var messageSize: Int { atOnce * Int(PERF_MESSAGE) }
    private static func batches(_ ops: Int) -> Int { (ops + atOnce - 1) / atOnce }
    private static func rounds(_ ops: Int) -> Int { (ops + round - 1) / round }

    private static func pairs(_ ops: Int, _ way: @escaping EchoWay) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let peers = (0..<connections).map { _ in
                var ends: [Int32] = [0, 0]
                perf_pair_make(&ends)
                way(ends[0], nil) {}
                return ends[1]
            }
            let ignored = Meter.ignored()
            defer { ignored.sample.deallocate() }
            func exchange(_ meter: Meter) {
                for peer in peers { perf_pair_ask_together(peer) }
                var missing = connections * messageSize
                while missing > 0 {  // ends: the server answers everything
                    meter.begin()
                    _ = loop.run(until: .distantPast)
                    meter.end()
                    for peer in peers { missing -= perf_pair_take_bytes(peer) }
                }
            }
            for _ in 0..<warmupRounds { exchange(ignored) }
            for _ in 0..<rounds(ops) { exchange(meter) }
            for peer in peers { close(peer) }
            for _ in 0..<8 { _ = loop.run(until: .distantPast) }
        }.rounded(to: round)
    }
}

extension Measurement {
    /// The same for so many operations.
    fileprivate func counted(_ ops: Int) -> Measurement {
        var result = self
        result.ops = ops
        return result
    }
}

/// How the requests of a connection are answered. All of a connection's answers that are on their way at once are far below `highWater`.
private enum PipeliningWays {
    static let handlers: EchoWay = { descriptor, _, ended in
        // The descriptor is connected and the loop has not ended, so this does not throw.
        let stream = try! ByteStream(adopting: descriptor, on: .current)
        stream.onReceive { stream, bytes in
            let whole = bytes.count / RequestFraming.size * RequestFraming.size
            bytes.withUnsafeBytes { bytes in
                for start in stride(from: 0, to: whole, by: RequestFraming.size) {
                    _ = stream.send(UnsafeRawBufferPointer(rebasing: bytes[start..<start + RequestFraming.size]))
                }
            }
            bytes.consume(whole)
        }
        stream.onEnd { _, _ in ended() }
    }

    static let task: EchoWay = { descriptor, _, ended in
        serve(descriptor, ended, nil)
    }

    static let taskWithActor: EchoWay = { descriptor, _, ended in
        serve(descriptor, ended, Service(RunLoop.current))
    }

    private static func serve(_ descriptor: Int32, _ ended: @escaping @Sendable () -> Void, _ service: Service?) {
        let loop = RunLoop.current
        let stream = try! ByteStream(adopting: descriptor, on: loop)
        Task(executorPreference: loop) {
            // A client that leaves with answers unread resets the connection.
            do {
                for try await request in stream.frames(RequestFraming()) {
                    try await stream.write(await service?.answer(request) ?? request)
                }
            } catch {}
            stream.close()
            ended()
        }
    }

    /// What all tasks of a server share, for example its data. On the loop.
    private actor Service {
        private let loop: RunLoop
        private var answered = 0
        nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

        init(_ loop: RunLoop) { self.loop = loop }

        func answer(_ request: [UInt8]) -> [UInt8] {
            answered += 1
            return request
        }
    }
}

/// Requests of 64 bytes.
private struct RequestFraming: StreamFraming {
    static let size = Int(PERF_MESSAGE)

    mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) -> [UInt8]? {
        bytes.count < Self.size ? nil : bytes.take(Self.size)
    }
}
