// W17: short connections on the loopback: the server accepts one, echoes a request of 64 bytes, and closes it. The server runs on processor
// 0, a client in C on processor 1. One operation is one connection, and the figure is the processor time of everything but the client.

import CPerfPeers
import EventLoop
import EventLoopStreams
import Glibc

enum W17Connections {
    static let warmup = 200
    static let amount = Amount.fixed(full: 3_000, quick: 500)

    static var cases: [Case] { [1, 100].flatMap { [byHand($0), streams($0), server($0)] } }

    private static func title(_ count: Int) -> String { "\(count) at a time, processor time a connection" }

    private static func byHand(_ count: Int) -> Case {
        Case(
            "W17.c\(count)", "short connections by hand, \(title(count))", metric: .processorTime, amount: amount,
            goals: [Goal("libevent", ratio: 1.05), Goal("nio", ratio: 0.6)],
            contenders: [
                Contender("eventloop") { eventLoop(count, $0, Ways.byHand) },
                Contender("libevent") { ops in inC(count, ops, buffers: false) },
            ])
    }

    private static func streams(_ count: Int) -> Case {
        Case(
            "W17.streams\(count)", "short connections by a stream's handlers, \(title(count))", metric: .processorTime, amount: amount,
            goals: [Goal("bufferevent", ratio: 1), Goal("nio", ratio: 0.6)],
            contenders: [
                Contender("eventloop") { eventLoop(count, $0, Ways.handlers) },
                Contender("closing-at-once") { eventLoop(count, $0, Ways.closingAtOnce) },
                Contender("by-hand") { eventLoop(count, $0, Ways.byHand) },
                Contender("bufferevent") { ops in inC(count, ops, buffers: true) },
            ])
    }

    private static func server(_ count: Int) -> Case {
        Case(
            "W17.server\(count)", "short connections by tasks of a stream server, \(title(count))", metric: .processorTime, amount: amount,
            goals: [Goal("handlers", ratio: 2), Goal("nio-async", ratio: 0.6)],
            contenders: [
                Contender("eventloop") { streamServer(count, $0) },
                Contender("handlers") { eventLoop(count, $0, Ways.handlers) },
            ])
    }

    // MARK: Servers

    /// Serves an accepted connection on the current thread's loop. Calls `ended` when the connection is closed.
    typealias Way = @Sendable (_ descriptor: Int32, _ ended: @escaping @Sendable () -> Void) -> Void

    private static func eventLoop(_ atOnce: Int, _ ops: Int, _ way: @escaping Way) -> Measurement {
        measured(ops: ops) { meter in
            perf_pin_this_thread(0)
            let loop = RunLoop.current
            let open = OnLoop(perf_countdown_make(warmup + ops))
            defer { perf_countdown_free(open.pointer) }
            let ended: @Sendable () -> Void = { if perf_countdown_hit(open.pointer) { loop.stop() } }
            // A port of the loopback is free.
            let listener = try! RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, descriptor, _ in
                way(descriptor, ended)
            }
            loop.add(listener)
            drive(loop, port(of: listener.localAddress), atOnce, ops, meter)
            listener.invalidate()
        }
    }

    private static func streamServer(_ atOnce: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            perf_pin_this_thread(0)
            let loop = RunLoop.current
            let open = OnLoop(perf_countdown_make(warmup + ops))
            defer { perf_countdown_free(open.pointer) }
            let server = try! StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop]) { stream in
                if let request = try? await stream.read() { try? await stream.write(request) }
                // On the loop's thread.
                if perf_countdown_hit(open.pointer) { loop.stop() }
            }
            drive(loop, port(of: server.localAddress), atOnce, ops, meter)
            Task(executorPreference: loop) {
                await server.shutdown()
                loop.stop(sticky: true)
            }
            loop.run()
        }
    }

    private static func drive(_ loop: RunLoop, _ port: UInt16, _ atOnce: Int, _ ops: Int, _ meter: Meter) {
        let client = perf_short_client_start(port, Int32(atOnce), warmup, ops)
        loop.run()
        perf_short_client_join(client, meter.sample)
        // The last streams learn that the client has closed their connections.
        for _ in 0..<8 { _ = loop.run(until: .distantPast) }
    }

    private static func port(of address: RunLoop.SocketAddress?) -> UInt16 {
        guard case .ipv4(_, let port) = address else { preconditionFailure("a listener on 127.0.0.1 has a port") }
        return port
    }

    private static func inC(_ atOnce: Int, _ ops: Int, buffers: Bool) -> Measurement {
        measuredInC(ops: ops) { peer_libevent_short_connections(buffers, Int32(atOnce), warmup, ops, $0) }
    }

    // MARK: One connection

    private enum Ways {
        static let byHand: Way = { descriptor, ended in
            // The descriptor is open, so this does not throw.
            let connection = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { source, _ in
                _ = perf_echo(descriptor)
                source.invalidate()
            }
            connection.onInvalidation { _ in
                close(descriptor)
                ended()
            }
            RunLoop.current.add(connection)
        }

        static let handlers: Way = { serve($0, $1) { $0.closeAfterWriting() } }

        /// As the peers do: what the kernel has not taken would be lost.
        static let closingAtOnce: Way = { serve($0, $1) { $0.close() } }

        private static func serve(
            _ descriptor: Int32, _ ended: @escaping @Sendable () -> Void, _ close: @escaping @Sendable (ByteStream) -> Void
        ) {
            // A client that has reset its connection already makes this throw; this client does not.
            let stream = try! ByteStream(adopting: descriptor, on: .current)
            stream.onReceive { stream, bytes in
                bytes.withUnsafeBytes { _ = stream.send($0) }
                bytes.consume(bytes.count)
                close(stream)
            }
            stream.onEnd { _, _ in ended() }
        }
    }
}
