// W7: an echo server on the loopback. The server runs on processor 0, a client in C on processor 1. One operation is one request of
// 64 bytes, and the figure is the processor time of everything but the client.

import CPerfPeers
import Dispatch
import EventLoop
import Glibc

enum W7Echo {
    static let warmup = 5_000

    static var cases: [Case] {
        [100, 1_000].map { connections in
            Case(
                "W7.c\(connections)", "echo server, \(connections) connections, processor time a request", metric: .processorTime,
                amount: .upTo(200_000), goals: [Goal("libevent", ratio: 1.05), Goal("nio", ratio: 0.75)],
                contenders: [
                    Contender("eventloop") { eventLoop(connections, $0) },
                    Contender("libevent") { ops in measuredInC(ops: ops) { peer_libevent_echo(Int32(connections), warmup, ops, $0) } },
                    Contender("dispatch", maximum: 50_000) { dispatch(connections, $0) },
                ])
        }
    }

    /// The server ends when the client has closed all its connections.
    final class OpenConnections: @unchecked Sendable {
        // SAFETY: used only on the loop's thread or on the server's queue.
        private var sources: [Int32: Any] = [:]
        private var remaining: Int

        init(_ count: Int) { remaining = count }
        func opened(_ descriptor: Int32, _ source: Any) { sources[descriptor] = source }

        /// True for the last one.
        func closed(_ descriptor: Int32) -> Bool {
            sources[descriptor] = nil
            remaining -= 1
            return remaining == 0
        }
    }

    static func eventLoop(_ connections: Int, _ ops: Int, observing observation: LoopObservation = .none) -> Measurement {
        measured(ops: ops) { meter in
            perf_pin_this_thread(0)
            var port: UInt16 = 0
            let listener = perf_listen(Int32(connections), &port)
            let loop = RunLoop.current
            let open = OpenConnections(connections)
            // The descriptors are open, so this does not throw.
            let accepting = try! RunLoop.DescriptorSource(descriptor: listener, events: .read) { _, _ in
                while case let descriptor = perf_accept(listener), descriptor >= 0 {
                    let connection = try! RunLoop.DescriptorSource(descriptor: descriptor, events: .read) { source, _ in
                        if perf_echo(descriptor) { return }
                        source.onInvalidation { close(descriptor) }
                        source.invalidate()
                        if open.closed(descriptor) { loop.stop() }
                    }
                    open.opened(descriptor, connection)
                    loop.add(connection)
                }
            }
            loop.add(accepting)
            observation.begin(loop)
            let client = perf_client_start(port, Int32(connections), warmup, ops)
            loop.run()
            perf_client_join(client, meter.sample)
            accepting.onInvalidation { close(listener) }
            accepting.invalidate()
        }
    }

    static func dispatch(_ connections: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            var port: UInt16 = 0
            let listener = perf_listen(Int32(connections), &port)
            let queue = DispatchQueue(label: "echo")
            let done = DispatchSemaphore(value: 0)
            let open = OpenConnections(connections)
            let accepting = DispatchSource.makeReadSource(fileDescriptor: listener, queue: queue)
            accepting.setEventHandler {
                while case let descriptor = perf_accept(listener), descriptor >= 0 {
                    let connection = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
                    connection.setEventHandler {
                        if perf_echo(descriptor) { return }
                        connection.cancel()
                    }
                    connection.setCancelHandler {
                        close(descriptor)
                        if open.closed(descriptor) { done.signal() }
                    }
                    open.opened(descriptor, connection)
                    connection.activate()
                }
            }
            accepting.setCancelHandler { close(listener) }
            accepting.activate()
            let client = perf_client_start(port, Int32(connections), warmup, ops)
            done.wait()
            perf_client_join(client, meter.sample)
            accepting.cancel()
            queue.sync {}
        }
    }
}
