// W21: datagrams of 64 bytes come over the loopback and are sent back. The server runs on processor 0, a client in C on processor 1, which has 1,
// 16 or 64 of them on their way. One operation is one datagram, and the figure is the processor time of everything but the client.

import CPerfPeers
import EventLoop
import EventLoopDatagrams

enum W21Datagrams {
    static let warmup = 6_400
    static let atOnce = [1, 16, 64]

    static var cases: [Case] {
        atOnce.map { atOnce in
            Case(
                "W21.n\(atOnce)", "a datagram is sent back, \(atOnce) at a time, processor time a datagram",
                metric: .processorTime, amount: .upTo(200_000), goals: [Goal("epoll", ratio: 1.1), Goal("nio", ratio: 0.5)],
                contenders: [
                    Contender("eventloop") { eventLoop(atOnce, $0) },
                    Contender("epoll") { ops in measuredInC(ops: ops) { peer_epoll_datagrams(Int32(atOnce), warmup, ops, $0) } },
                ])
        }
    }

    private static func eventLoop(_ atOnce: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            perf_pin_this_thread(0)
            let loop = RunLoop.current
            // A port of the loopback is free.
            let socket = try! DatagramSocket(boundTo: .ipv4(host: "127.0.0.1", port: 0), on: loop)
            socket.onReceive { socket, datagram in
                if datagram.bytes.count == 1 { return loop.stop() }
                socket.send(datagram.bytes, to: datagram.peer)
            }
            guard case .ipv4(_, let port) = socket.localAddress else { preconditionFailure("a socket on 127.0.0.1 has a port") }
            let client = perf_datagram_client_start(port, Int32(atOnce), warmup, ops)
            loop.run()
            perf_datagram_client_join(client, meter.sample)
            socket.close()
        }
    }
}
