// SwiftNIO in W14 and W17: a channel's handler, a task for each channel, and an actor for each channel. One event loop group with one thread.

import CPerfPeers
import Dispatch
import NIOCore
import NIOPosix

enum NIOStreams {
    static var all: [(String, Contender)] {
        var all: [(String, Contender)] = []
        for count in [1, 100] {
            all.append(("W14.c\(count)", messages("nio", count, .small, Ways.handler)))
            all.append(("W14.async\(count)", messages("nio-async", count, .small, Ways.task)))
            all.append(("W14.actor\(count)", messages("nio-actor", count, .small, Ways.actorOnLoop)))
            all.append(("W14.actor\(count)", messages("nio-actor-global", count, .small, Ways.actorOnPool)))
            all.append(("W14.large\(count)", messages("nio", count, .large, Ways.handler)))
            all.append(("W14.large-async\(count)", messages("nio-async", count, .large, Ways.task)))
            all.append(("W17.c\(count)", connections("nio", count, Ways.answeringHandler)))
            all.append(("W17.streams\(count)", connections("nio", count, Ways.answeringHandler)))
            all.append(("W17.server\(count)", connections("nio-async", count, Ways.answeringTask)))
        }
        return all
    }

    private static func messages(_ name: String, _ count: Int, _ size: W14Streams.Size, _ way: @escaping Way) -> Contender {
        Contender(name, maximum: 100_000) { ops in
            serve(count, way) { port, sample in
                perf_client_join(perf_message_client_start(port, Int32(count), size.rawValue, size.warmup, ops), sample)
            }.measurement(ops)
        }
    }

    private static func connections(_ name: String, _ atOnce: Int, _ way: @escaping Way) -> Contender {
        Contender(name) { ops in
            serve(W17Connections.warmup + ops, way) { port, sample in
                perf_short_client_join(perf_short_client_start(port, Int32(atOnce), W17Connections.warmup, ops), sample)
            }.measurement(ops)
        }
    }

    // MARK: The server

    /// Prepares an accepted channel, on its event loop. A task that serves it is part of `tasks`.
    typealias Way = @Sendable (_ channel: any Channel, _ tasks: DispatchGroup) throws -> Void

    /// Serves until `count` connections are closed. `client` drives a client until its end.
    private static func serve(
        _ count: Int, _ way: @escaping Way, _ client: @escaping @Sendable (UInt16, UnsafeMutablePointer<perf_sample>) -> Void
    ) -> perf_sample {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        try! group.next().submit { perf_pin_this_thread(0) }.wait()
        let open = OnLoop(perf_countdown_make(count))
        let (done, tasks) = (DispatchSemaphore(value: 0), DispatchGroup())
        let server = try! ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1024)
            .childChannelInitializer { channel in
                channel.closeFuture.whenComplete { _ in if perf_countdown_hit(open.pointer) { done.signal() } }
                return channel.eventLoop.makeCompletedFuture { try way(channel, tasks) }
            }
            .bind(host: "127.0.0.1", port: 0).wait()
        var sample = perf_sample()
        client(UInt16(server.localAddress!.port!), &sample)
        done.wait()
        tasks.wait()
        try! server.close().wait()
        try! group.syncShutdownGracefully()  // fails on the group's own thread only
        perf_countdown_free(open.pointer)
        return sample
    }

    // MARK: One connection

    private typealias AsyncChannel = NIOAsyncChannel<ByteBuffer, ByteBuffer>

    private enum Ways {
        static let handler: Way = { channel, _ in try channel.pipeline.syncOperations.addHandler(Echo()) }
        static let answeringHandler: Way = { channel, _ in try channel.pipeline.syncOperations.addHandler(Answer()) }

        static let task: Way = { channel, tasks in
            let connection = try AsyncChannel(wrappingChannelSynchronously: channel)
            start(tasks) { await echo(connection) }
        }

        static let answeringTask: Way = { channel, tasks in
            let connection = try AsyncChannel(wrappingChannelSynchronously: channel)
            start(tasks) {
                try? await connection.executeThenClose { inbound, outbound in
                    for try await bytes in inbound {
                        try await outbound.write(bytes)
                        return
                    }
                }
            }
        }

        static let actorOnLoop: Way = { channel, tasks in
            let connection = LoopActor(try AsyncChannel(wrappingChannelSynchronously: channel))
            start(tasks) { await connection.serve() }
        }

        static let actorOnPool: Way = { channel, tasks in
            let connection = PoolActor(try AsyncChannel(wrappingChannelSynchronously: channel))
            start(tasks) { await connection.serve() }
        }

        private static func start(_ tasks: DispatchGroup, _ body: @escaping @Sendable () async -> Void) {
            tasks.enter()
            Task {
                await body()
                tasks.leave()
            }
        }
    }

    private static func echo(_ connection: AsyncChannel, isolation: isolated (any Actor)? = #isolation) async {
        // A client that leaves with answers unread resets the connection.
        try? await connection.executeThenClose { inbound, outbound in
            for try await bytes in inbound { try await outbound.write(bytes) }
        }
    }

    private actor LoopActor {
        private let connection: AsyncChannel
        private let executor: any SerialExecutor
        nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

        init(_ connection: AsyncChannel) { (self.connection, executor) = (connection, connection.channel.eventLoop.executor) }
        func serve() async { await echo(connection) }
    }

    private actor PoolActor {
        private let connection: AsyncChannel

        init(_ connection: AsyncChannel) { self.connection = connection }
        func serve() async { await echo(connection) }
    }

    private final class Echo: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer

        func channelRead(context: ChannelHandlerContext, data: NIOAny) { context.writeAndFlush(data, promise: nil) }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    private final class Answer: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            context.writeAndFlush(data, promise: nil)
            context.close(promise: nil)
        }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }
}

extension perf_sample {
    fileprivate func measurement(_ ops: Int) -> Measurement { Measurement(sample: self, ops: ops) }
}
