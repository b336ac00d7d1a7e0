// W14: the heap memory of an idle connection, all of it: the stream, its source, its handlers, and the task that reads from it.

import CPerfPeers
import EventLoop
import EventLoopStreams
import Glibc

enum W14Idle {
    private static let amount = Amount.fixed(full: 5_000, quick: 2_000)
    /// No peer: the goal for an idle connection.
    private static let limit = Contender("2.5-KiB") { count in
        Measurement(
            sample: {
                var sample = perf_sample(); sample.live_bytes = Int64(count) * 2_560; return sample
            }(), ops: count)
    }

    static var cases: [Case] {
        [
            Case(
                "W14.idle", "heap of an idle connection with handlers", metric: .heapBytes, amount: amount,
                goals: [Goal("2.5-KiB", ratio: 1)],
                gated: [.allocations, .heap],
                contenders: [
                    Contender("eventloop") { hold($0, EchoWays.handlers) },
                    limit,
                    Contender("bufferevent") { count in measuredInC(ops: count) { peer_libevent_hold_streams(count, $0) } },
                ]),
            Case(
                "W14.idle-timeout", "heap of an idle connection with handlers and an idle timeout", metric: .heapBytes, amount: amount,
                goals: [Goal("2.5-KiB", ratio: 1)], gated: [.heap],
                contenders: [Contender("eventloop") { hold($0, EchoWays.handlersWithTimeout) }, limit]),
            Case(
                "W14.idle-server", "heap of an idle connection with the task of a stream server", metric: .heapBytes, amount: amount,
                goals: [Goal("2.5-KiB", ratio: 1)], gated: [.allocations, .heap],
                contenders: [Contender("eventloop", measure: holdServed), limit]),
        ]
    }

    /// Connections whose handlers have been called once, which makes what is made late.
    private static func hold(_ count: Int, _ way: @escaping EchoWay) -> Measurement {
        measured(ops: count) { meter in
            let loop = RunLoop.current
            var peers: [Int32] = []
            peers.reserveCapacity(count)
            let ends = (0..<count).map { _ in
                var ends: [Int32] = [0, 0]
                perf_pair_make(&ends)
                peers.append(ends[1])
                return ends[0]
            }
            meter.begin()
            for descriptor in ends { way(descriptor, nil) {} }
            for peer in peers { perf_pair_ask(peer) }
            passes(loop)
            meter.end()
            for peer in peers { close(peer) }
            passes(loop)
        }
    }

    /// Connections that a server has accepted, and whose tasks wait for a second message.
    private static func holdServed(_ count: Int) -> Measurement {
        measured(ops: count) { meter in
            let loop = RunLoop.current
            var peers: [Int32] = []
            peers.reserveCapacity(count)
            // A port of the loopback is free, and the loop has not ended.
            let server = try! StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop]) { stream in
                while let bytes = try? await stream.read() { try? await stream.write(bytes) }
            }
            guard case .ipv4(_, let port) = server.localAddress else { return }
            meter.begin()
            for _ in 0..<count {
                let peer = perf_connect(port)
                peers.append(peer)
                perf_pair_ask(peer)
                passes(loop)
            }
            passes(loop)
            meter.end()
            precondition(server.connections == count, "not every connection was accepted")
            for peer in peers { close(peer) }
            Task(executorPreference: loop) {
                await server.shutdown()
                loop.stop(sticky: true)
            }
            loop.run()
        }
    }

    /// Serves what is ready, and what that makes ready.
    private static func passes(_ loop: RunLoop) {
        for _ in 0..<8 { _ = loop.run(until: .distantPast) }
    }
}
