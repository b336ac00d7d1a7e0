// Open connections, each a stream with handlers over a socket pair, of which one asks at a time.

import CPerfPeers
import EventLoop
import Glibc

enum GrowthConnections {
    static func make(_ size: Int) -> GrowthRig {
        let loop = RunLoop.current
        let peers = (0..<size).map { _ in
            var ends: [Int32] = [0, 0]
            perf_pair_make(&ends)
            EchoWays.handlers(ends[0], nil) {}
            return ends[1]
        }
        var next = 0
        return GrowthRig { _, ops in
            let start = perf_wall_ns()
            for _ in 0..<ops {
                perf_pair_ask(peers[next])
                repeat { _ = loop.run(until: .distantPast) } while !perf_pair_take(peers[next])  // ends: the stream answers
                next = (next + Int(PERF_GROWTH_STRIDE)) % size
            }
            return perf_wall_ns() - start
        } end: {
            for peer in peers { close(peer) }
            for _ in 0..<8 { _ = loop.run(until: .distantPast) }
        }
    }
}
