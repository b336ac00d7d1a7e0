// SwiftNIO. Each run has its own event loop group with one thread, like a server.

import CPerfPeers
import Dispatch
import Glibc
import NIOCore
import NIOPosix

enum NIOPeers {
    static var all: [(String, Contender)] {
        var all: [(String, Contender)] = FurtherPeers.cascades.map { pipes, active in
            ("W1.n\(pipes).a\(active)", Contender("nio", maximum: 200_000) { cascade(pipes, active, $0) })
        }
        all += W2aPosts.posting("nio", make: loop)
        all += [100, 1_000].map { connections in
            ("W7.c\(connections)", Contender("nio", maximum: 100_000) { echo(connections, $0) })
        }
        all += [(1_000, "t1k"), (100_000, "t100k")].map { timers, name in
            ("W3a.make.\(name)", Contender("nio", maximum: timers > 1_000 ? 500 : 20_000) { makeTimers(timers, $0) })
        }
        for atOnce in W21Datagrams.atOnce {
            all.append(("W21.n\(atOnce)", Contender("nio", maximum: 200_000) { datagrams(atOnce, inBatches: true, $0) }))
            all.append(("W21.n\(atOnce)", Contender("nio-single", maximum: 200_000) { datagrams(atOnce, inBatches: false, $0) }))
        }
        return all
    }

    /// Runs `body` with a group of one thread, and shuts the group down before it returns.
    private static func withGroup(_ body: (MultiThreadedEventLoopGroup) -> Void) {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        body(group)
        try! group.syncShutdownGracefully()  // fails on the group's own thread only
    }

    // MARK: W1

    /// One end of the ring: reads a message and sends it to the next pipe.
    private final class Station: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        private let ring: OnLoop<perf_ring>
        private let index: Int32
        private let done: DispatchSemaphore

        init(_ ring: OnLoop<perf_ring>, _ index: Int32, _ done: DispatchSemaphore) {
            (self.ring, self.index, self.done) = (ring, index, done)
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            // The buffer is the 8 bytes that NIO has read.
            if perf_ring_pass(ring.pointer, index) { done.signal() }
        }
    }

    static func cascade(_ pipes: Int, _ active: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let ring = OnLoop(perf_ring_make(Int32(pipes), Int32(active)))
            defer { perf_ring_free(ring.pointer) }
            let done = DispatchSemaphore(value: 0)
            withGroup { group in
                for index in 0..<Int32(pipes) {
                    // NIO owns and closes what it reads from.
                    let descriptor = dup(ring.pointer.pointee.reads[Int(index)])
                    _ = try! NIOPipeBootstrap(group: group)
                        .channelInitializer { $0.pipeline.addHandler(Station(ring, index, done)) }
                        .takingOwnershipOfDescriptor(input: descriptor).wait()
                }
                let loop = group.next()
                try! loop.submit { ring.pointer.pointee.remaining = W1Cascade.warmup(pipes) }.wait()
                perf_ring_kick(ring.pointer)
                done.wait()
                meter.begin()
                try! loop.submit { ring.pointer.pointee.remaining = ops }.wait()
                done.wait()
                meter.end()
            }
        }
    }

    // MARK: W2a

    static func loop() -> PostingLoop {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let done = DispatchSemaphore(value: 0)
        return PostingLoop(
            run: {
                done.wait()
                // Does not wait: the time until the last closure has been performed is measured.
                group.shutdownGracefully { _ in }
            },
            post: { posts, countdown in
                for _ in 0..<posts {
                    loop.execute { if perf_countdown_hit(countdown.pointer) { done.signal() } }
                }
            },
            hold: { body in loop.execute(body) })
    }

    // MARK: W3a

    static func makeTimers(_ timers: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            withGroup { group in
                let loop = group.next()
                // On the loop's thread, to which the meter belongs here.
                try! loop.submit {
                    var random: UInt64 = 1
                    func add() -> Scheduled<Void> { loop.scheduleTask(in: .nanoseconds(perf_random_delay(&random))) {} }
                    let all = (0..<timers).map { _ in add() }
                    var made: [Scheduled<Void>] = []
                    for _ in stride(from: 0, to: ops, by: W3Timers.batch) {
                        meter.begin()
                        for _ in 0..<W3Timers.batch { made.append(add()) }
                        for task in made { task.cancel() }
                        made.removeAll(keepingCapacity: true)
                        meter.end()
                    }
                    for task in all { task.cancel() }
                }.wait()
            }
        }.rounded(to: W3Timers.batch)
    }

    // MARK: W7

    private final class Echo: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer
        private let open: OnLoop<perf_countdown>
        private let done: DispatchSemaphore

        init(_ open: OnLoop<perf_countdown>, _ done: DispatchSemaphore) { (self.open, self.done) = (open, done) }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) { context.writeAndFlush(data, promise: nil) }
        func channelInactive(context: ChannelHandlerContext) { if perf_countdown_hit(open.pointer) { done.signal() } }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    static func echo(_ connections: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let open = OnLoop(perf_countdown_make(connections))
            defer { perf_countdown_free(open.pointer) }
            let done = DispatchSemaphore(value: 0)
            withGroup { group in
                try! group.next().submit { perf_pin_this_thread(0) }.wait()
                let server = try! ServerBootstrap(group: group)
                    .serverChannelOption(.backlog, value: Int32(connections))
                    .childChannelOption(.socketOption(.tcp_nodelay), value: 1)
                    .childChannelInitializer { $0.pipeline.addHandler(Echo(open, done)) }
                    .bind(host: "127.0.0.1", port: 0).wait()
                let client = perf_client_start(UInt16(server.localAddress!.port!), Int32(connections), W7Echo.warmup, ops)
                done.wait()
                perf_client_join(client, meter.sample)
                try! server.close().wait()
            }
        }
    }

    // MARK: W21

    private final class DatagramEcho: ChannelInboundHandler, Sendable {
        typealias InboundIn = AddressedEnvelope<ByteBuffer>
        typealias OutboundOut = AddressedEnvelope<ByteBuffer>
        private let done: DispatchSemaphore

        init(_ done: DispatchSemaphore) { self.done = done }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            if unwrapInboundIn(data).data.readableBytes == 1 { done.signal() } else { context.write(data, promise: nil) }
        }

        func channelReadComplete(context: ChannelHandlerContext) { context.flush() }
    }

    /// With `inBatches`, NIO receives with recvmmsg, which is not its default. In both cases it sends with sendmmsg what is flushed together.
    static func datagrams(_ atOnce: Int, inBatches: Bool, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let done = DispatchSemaphore(value: 0)
            withGroup { group in
                try! group.next().submit { perf_pin_this_thread(0) }.wait()
                var bootstrap = DatagramBootstrap(group: group).channelInitializer { $0.pipeline.addHandler(DatagramEcho(done)) }
                if inBatches {
                    // As many, and with as much space for each, as the other contenders.
                    bootstrap = bootstrap.channelOption(.datagramVectorReadMessageCount, value: 64)
                        .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 64 * 2_048))
                }
                let server = try! bootstrap.bind(host: "127.0.0.1", port: 0).wait()
                let client = perf_datagram_client_start(
                    UInt16(server.localAddress!.port!), Int32(atOnce), W21Datagrams.warmup, ops)
                done.wait()
                perf_datagram_client_join(client, meter.sample)
                try! server.close().wait()
            }
        }
    }
}
