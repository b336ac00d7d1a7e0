// W20: the HTTP server of EventLoopHTTP with keep-alive connections on the loopback, against libevent's in C. As W11: the server runs on
// processor 0, a client in C on processor 1, and the figure is the processor time of everything but the client.
//
// Built with the trait HTTP only: swift run -c release --traits HTTP eventloop-perf --filter W20

#if HTTP

import CPerfPeers
import EventLoop
import EventLoopHTTP
import Glibc
import HTTPTypes

enum W20HTTPServer {
    static let warmup = 5_000

    static var cases: [Case] {
        [1, 100].map { connections in
            Case(
                "W20.c\(connections)",
                "HTTP server, \(connections) keep-alive connection\(connections == 1 ? "" : "s"), processor time a request",
                metric: .processorTime, amount: .upTo(200_000), goals: [Goal("libevent", ratio: 1.05)],
                contenders: [
                    Contender("eventloop") { eventLoop(connections, $0) },
                    Contender("libevent") { ops in measuredInC(ops: ops) { peer_libevent_http(Int32(connections), warmup, ops, $0) } },
                ])
        } + [
            Case(
                "W20.idle", "heap of an idle keep-alive connection that has been answered once", metric: .heapBytes,
                amount: .fixed(full: 9_900, quick: 2_000), goals: [Goal("four-answers", ratio: 1.05)], descriptors: 19_850,
                contenders: [
                    Contender("eventloop") { hold($0, requests: 1) },
                    Contender("four-answers") { hold($0, requests: 4) },
                    Contender("libevent") { count in measuredInC(ops: count) { peer_libevent_hold_http(count, $0) } },
                ])
        ]
    }

    /// Connections that a server has accepted and answered.
    private static func hold(_ count: Int, requests: Int) -> Measurement {
        measured(ops: count) { meter in
            let loop = RunLoop.current
            var peers: [Int32] = []
            peers.reserveCapacity(count)
            let body = [UInt8](repeating: 0, count: 64)
            // A port of the loopback is free.
            let server = try! HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop]) { _ in
                HTTPServer.Response(headerFields: [.contentType: "text/plain"], body: .bytes(body))
            }
            guard case .ipv4(_, let port) = server.localAddress else { preconditionFailure("a listener on 127.0.0.1 has a port") }
            func ask(_ peer: Int32) {
                perf_http_ask(peer)
                for _ in 0..<8 { _ = loop.run(until: .distantPast) }
                precondition(perf_http_take(peer), "a request was not answered")
            }
            meter.begin()
            for _ in 0..<count {
                peers.append(perf_connect(port))
                ask(peers[peers.count - 1])
            }
            for _ in 1..<requests { peers.forEach(ask) }
            meter.end()
            for peer in peers { close(peer) }
            Task(executorPreference: loop) {
                await server.shutdown(grace: .zero)
                loop.stop(sticky: true)
            }
            loop.run()
        }
    }

    private final class Used: @unchecked Sendable {
        // SAFETY: the loop's thread.
        var server: HTTPServer?

        func stopWhenUnused(_ loop: RunLoop) {
            RunLoop.Timer.scheduled(every: .milliseconds(2)) { [self] timer in
                if let server, server.connections > 0 { return }
                timer.invalidate()
                loop.stop()
            }
        }
    }

    private static func eventLoop(_ connections: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            perf_pin_this_thread(0)
            let loop = RunLoop.current
            let open = OnLoop(perf_countdown_make(warmup + ops))
            defer { perf_countdown_free(open.pointer) }
            let used = Used()
            let body = [UInt8](repeating: 0, count: 64)
            // A port of the loopback is free.
            let server = try! HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop]) { _ in
                // The last requests are handled. The client closes its connections when it has their answers.
                if perf_countdown_hit(open.pointer) { used.stopWhenUnused(loop) }
                return HTTPServer.Response(headerFields: [.contentType: "text/plain"], body: .bytes(body))
            }
            used.server = server
            guard case .ipv4(_, let port) = server.localAddress else { preconditionFailure("a listener on 127.0.0.1 has a port") }
            let client = perf_http_client_start(port, Int32(connections), warmup, ops)
            loop.run()
            perf_client_join(client, meter.sample)
            Task(executorPreference: loop) {
                await server.shutdown(grace: .zero)
                loop.stop(sticky: true)
            }
            loop.run()
        }
    }
}

#endif
