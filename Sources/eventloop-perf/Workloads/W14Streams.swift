// W14: echo over byte streams. In `c…`, `async…` and `large…` a server on the loopback runs on processor 0 and a client in C on processor 1,
// as in W7; one operation is one message, and the figure is the processor time of everything but the client. In `pair` and `receive` the
// measuring thread drives the peer's end of a socket pair itself, with one or two system calls a message, so that counts are exact.

import CPerfPeers
import EventLoop
import EventLoopStreams
import Glibc

enum W14Streams {
    static let warmup = 5_000
    private static let counted: Set<Count> = [.allocations, .systemCalls]

    static var cases: [Case] {
        [1, 100].flatMap { [small($0), async($0), actor($0)] } + [1, 100].flatMap { [large($0), largeAsync($0)] } + pairs + W14Idle.cases
    }

    private static func title(_ count: Int) -> String { "\(count) connection\(count == 1 ? "" : "s"), processor time a message" }

    private static func small(_ count: Int) -> Case {
        Case(
            "W14.c\(count)", "echo of 64 bytes by a stream's handlers, \(title(count))", metric: .processorTime, amount: .upTo(200_000),
            goals: [Goal("by-hand", ratio: 1.1), Goal("bufferevent", ratio: 1), Goal("nio", ratio: 0.6)],
            contenders: [
                Contender("eventloop") { echo(count, .small, $0, EchoWays.handlers) },
                Contender("by-hand") { echo(count, .small, $0, EchoWays.byHand) },
                Contender("bufferevent") { echoInC(PERF_BUFFEREVENT, count, .small, $0) },
                Contender("evbuffer") { echoInC(PERF_EVBUFFER, count, .small, $0) },
                Contender("evbuffer-reserved") { echoInC(PERF_EVBUFFER_RESERVED, count, .small, $0) },
            ])
    }

    private static func async(_ count: Int) -> Case {
        Case(
            "W14.async\(count)", "echo of 64 bytes by a task for each stream, \(title(count))", metric: .processorTime,
            amount: .upTo(200_000), goals: [Goal("handlers", ratio: 2), Goal("nio-async", ratio: 0.6)],
            contenders: [
                Contender("eventloop") { echo(count, .small, $0, EchoWays.task) },
                Contender("handlers") { echo(count, .small, $0, EchoWays.handlers) },
            ])
    }

    private static func actor(_ count: Int) -> Case {
        Case(
            "W14.actor\(count)", "echo of 64 bytes by an actor for each stream, on the loop, \(title(count))", metric: .processorTime,
            amount: .upTo(200_000), goals: [Goal("task", ratio: 1.1), Goal("nio-actor", "nio-actor-global", ratio: 0.6)],
            contenders: [
                Contender("eventloop") { echo(count, .small, $0, EchoWays.actor) },
                Contender("task") { echo(count, .small, $0, EchoWays.task) },
                Contender("default-task") { echo(count, .small, $0, EchoWays.actorOfDefaultTask) },
            ])
    }

    private static func large(_ count: Int) -> Case {
        Case(
            "W14.large\(count)", "echo of 64 KiB by a stream's handlers, \(title(count))", metric: .processorTime, amount: .upTo(20_000),
            goals: [Goal("by-hand", ratio: 1.05), Goal("bufferevent", ratio: 1), Goal("nio", ratio: 0.6)],
            contenders: [
                Contender("eventloop") { echo(count, .large, $0, EchoWays.handlers) },
                Contender("by-hand") { echo(count, .large, $0, EchoWays.byHand) },
                Contender("bufferevent") { echoInC(PERF_BUFFEREVENT, count, .large, $0) },
                Contender("evbuffer") { echoInC(PERF_EVBUFFER, count, .large, $0) },
                Contender("evbuffer-reserved") { echoInC(PERF_EVBUFFER_RESERVED, count, .large, $0) },
            ])
    }

    private static func largeAsync(_ count: Int) -> Case {
        Case(
            "W14.large-async\(count)", "echo of 64 KiB by a task for each stream, \(title(count))", metric: .processorTime,
            amount: .upTo(20_000), goals: [Goal("handlers", ratio: 2), Goal("nio-async", ratio: 0.6)],
            contenders: [
                Contender("eventloop") { echo(count, .large, $0, EchoWays.task) },
                Contender("handlers") { echo(count, .large, $0, EchoWays.handlers) },
            ])
    }

    private static var pairs: [Case] {
        [
            Case(
                "W14.pair", "echo of 64 bytes over a socket pair by a stream's handlers", goals: [Goal("by-hand", ratio: 1.1)],
                gated: counted,
                contenders: [
                    Contender("eventloop") { pair($0, EchoWays.handlers) },
                    Contender("by-hand") { pair($0, EchoWays.byHand) },
                    Contender("bufferevent") { pairInC(PERF_BUFFEREVENT, $0) },
                    Contender("evbuffer") { pairInC(PERF_EVBUFFER, $0) },
                    Contender("evbuffer-reserved") { pairInC(PERF_EVBUFFER_RESERVED, $0) },
                    Contender("libevent") { pairInC(PERF_NO_BUFFER, $0) },
                ]),
            Case(
                "W14.pair-async", "echo of 64 bytes over a socket pair by a task", goals: [Goal("handlers", ratio: 2)], gated: counted,
                contenders: [
                    Contender("eventloop") { pair($0, EchoWays.task) },
                    Contender("handlers") { pair($0, EchoWays.handlers) },
                ]),
            Case(
                "W14.pair-timeout", "echo by handlers, each message pushing an idle timeout back", goals: [Goal("handlers", ratio: 1.05)],
                gated: counted,
                contenders: [
                    Contender("eventloop") { pair($0, EchoWays.handlersWithTimeout) },
                    Contender("handlers") { pair($0, EchoWays.handlers) },
                ]),
            Case(
                "W14.receive", "64 bytes that a stream's handler looks at and consumes", goals: [Goal("by-hand", ratio: 1.1)],
                gated: counted,
                contenders: [
                    Contender("eventloop") { receive($0, EchoWays.consuming) },
                    Contender("by-hand") { receive($0, EchoWays.consumingByHand) },
                ]),
        ]
    }

    enum Size: Int {
        case small = 64
        case large = 65_536

        var warmup: Int { self == .small ? W14Streams.warmup : W14Streams.warmup / 10 }
    }

    // MARK: Servers

    private static func echo(_ connections: Int, _ size: Size, _ ops: Int, _ way: @escaping EchoWay) -> Measurement {
        serve(connections, messageSize: size.rawValue, warmup: size.warmup, ops, way)
    }

    /// Serves `ops` messages of the client, each of `messageSize` bytes, after those of the warm-up.
    static func serve(_ connections: Int, messageSize: Int, warmup: Int, _ ops: Int, _ way: @escaping EchoWay) -> Measurement {
        measured(ops: ops) { meter in
            perf_pin_this_thread(0)
            var port: UInt16 = 0
            let listener = perf_listen(Int32(connections), &port)
            let loop = RunLoop.current
            let open = OnLoop<Int>(.allocate(capacity: 1))
            open.pointer.initialize(to: connections)
            defer { open.pointer.deallocate() }
            // The descriptor is open, so this does not throw.
            let accepting = try! RunLoop.DescriptorSource(descriptor: listener, events: .read) { _, _ in
                while case let descriptor = perf_accept(listener), descriptor >= 0 {
                    way(descriptor, nil) {
                        open.pointer.pointee -= 1
                        if open.pointer.pointee == 0 { loop.stop() }
                    }
                }
            }
            loop.add(accepting)
            let client = perf_message_client_start(port, Int32(connections), messageSize, warmup, ops)
            loop.run()
            perf_client_join(client, meter.sample)
            accepting.onInvalidation { close(listener) }
            accepting.invalidate()
        }
    }

    private static func echoInC(_ how: perf_streaming, _ connections: Int, _ size: Size, _ ops: Int) -> Measurement {
        measuredInC(ops: ops) { peer_libevent_stream_echo(how, Int32(connections), size.rawValue, size.warmup, ops, $0) }
    }

    // MARK: Pairs

    private static func pair(_ ops: Int, _ way: @escaping EchoWay) -> Measurement {
        drive(ops, way) { precondition(perf_pair_take($0), "a message was lost") }
    }

    private static func receive(_ ops: Int, _ way: @escaping EchoWay) -> Measurement { drive(ops, way) { _ in } }

    private static func pairInC(_ how: perf_streaming, _ ops: Int) -> Measurement {
        measuredInC(ops: ops) { peer_libevent_stream_pair(how, warmup, ops, $0) }
    }

    /// Each message is one run of the loop, which the handler stops.
    private static func drive(_ ops: Int, _ way: @escaping EchoWay, _ finish: @escaping @Sendable (_ peer: Int32) -> Void) -> Measurement {
        measured(ops: ops) { meter in
            var ends: [Int32] = [0, 0]
            perf_pair_make(&ends)
            let peer = ends[1]
            let loop = RunLoop.current
            way(ends[0], { loop.stop() }) { loop.stop() }
            func ask(_ times: Int) {
                for _ in 0..<times {
                    perf_pair_ask(peer)
                    loop.run()
                    finish(peer)
                }
            }
            ask(warmup)
            meter.begin()
            ask(ops)
            meter.end()
            close(peer)
            loop.run()
        }
    }
}
