// W11: libevent's HTTP server with keep-alive connections on the loopback. The server, which is all C, runs on processor 0, a client in C
// on processor 1. One operation is one request, and the figure is the processor time of everything but the client.

import CPerfPeers
import EventLoop

enum W11HTTP {
    static let warmup = 5_000

    static var cases: [Case] {
        [1, 100].map { connections in
            Case(
                "W11.c\(connections)",
                "evhttp, \(connections) keep-alive connection\(connections == 1 ? "" : "s"), processor time a request",
                metric: .processorTime, amount: .upTo(200_000), goals: [Goal("libevent", ratio: 1.03)],
                contenders: [
                    Contender("eventloop") { eventLoop(connections, $0) },
                    Contender("libevent") { ops in measuredInC(ops: ops) { peer_libevent_http(Int32(connections), warmup, ops, $0) } },
                ])
        }
    }

    static func eventLoop(_ connections: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            perf_pin_this_thread(0)
            let loop = RunLoop.current
            var port: UInt16 = 0
            let server = loop.withEventBase { base in
                perf_http_start(base, Int32(connections), &port, { _ in RunLoop.current.stop() }, nil)
            }
            let client = perf_http_client_start(port, Int32(connections), warmup, ops)
            loop.run()
            perf_client_join(client, meter.sample)
            perf_http_free(server)
        }
    }
}
