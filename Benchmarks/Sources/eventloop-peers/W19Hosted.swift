// W19: what NIO costs when a run loop is on its thread, against NIO alone: the same server in the same process, one event loop. It is on
// processor 0, and a client in C on processor 1. One operation is one request, and the figure is the processor time of everything but the client.
//
// `http` is NIO's HTTP/1.1 pipeline: the run loop has no work. `async` is an echo by a task for each `NIOAsyncChannel`: hosted, the task prefers
// the run loop, and so stays on NIO's thread; with NIO alone it is in Swift's pool, since NIO's event loops are no executors of tasks. `idle` is a
// second with nothing to do.

import CPerfPeers
import Dispatch
import EventLoop
import EventLoopNIO
import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix

enum W19Hosted {
    static let warmup = 5_000

    static var cases: [Case] {
        [1, 100].flatMap { count -> [Case] in
            let connections = "\(count) connection\(count == 1 ? "" : "s")"
            return [
                Case(
                    "W19.http\(count)", "NIO's HTTP/1.1 with a run loop on its thread, \(connections), processor time a request",
                    metric: .processorTime, amount: .upTo(200_000), goals: [Goal("nio", ratio: 1.02)],
                    contenders: [
                        Contender("eventloop") { http(count, isHosted: true, $0) }, Contender("nio") { http(count, isHosted: false, $0) },
                    ]),
                Case(
                    "W19.async\(count)", "NIOAsyncChannel with tasks on its thread, \(connections), processor time a message",
                    metric: .processorTime, amount: .upTo(100_000), goals: [Goal("nio", ratio: 0.8)],
                    contenders: [
                        Contender("eventloop") { echo(count, isHosted: true, $0) }, Contender("nio") { echo(count, isHosted: false, $0) },
                    ]),
            ]
        } + [
            Case(
                "W19.idle", "NIO with a run loop on its thread, a second with nothing to do", metric: .processorTime,
                amount: .fixed(full: 1, quick: 1), isHeavy: true,
                contenders: [Contender("eventloop") { idle(isHosted: true, $0) }, Contender("nio") { idle(isHosted: false, $0) }])
        ]
    }

    /// Calls `body` with an event loop on processor 0, and with the run loop on its thread, if it has one.
    private static func withEventLoop<Result>(isHosted: Bool, _ body: (any NIOCore.EventLoop, RunLoop?) -> Result) -> Result {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let eventLoop = group.next()
        try! eventLoop.submit { perf_pin_this_thread(0) }.wait()
        let host = isHosted ? start(eventLoop) : nil
        let result = body(eventLoop, host?.runLoop)
        try! group.syncShutdownGracefully()  // fails on the group's own thread only
        return result
    }

    private static func start(_ eventLoop: any NIOCore.EventLoop) -> NIOHost {
        let (done, host) = (DispatchSemaphore(value: 0), OnLoop(UnsafeMutablePointer<NIOHost?>.allocate(capacity: 1)))
        host.pointer.initialize(to: nil)
        defer {
            host.pointer.deinitialize(count: 1)
            host.pointer.deallocate()
        }
        Task {
            host.pointer.pointee = try! await NIOHost.start(on: eventLoop)  // there are descriptors, and NIO waits with epoll
            done.signal()
        }
        done.wait()
        return host.pointer.pointee!
    }

    // MARK: Servers

    private static func http(_ count: Int, isHosted: Bool, _ ops: Int) -> Measurement {
        serve(
            count, isHosted, { perf_http_client_start($0, Int32(count), warmup, ops) }, ops,
            childHandlers: { channel, served, _ in
                try channel.pipeline.syncOperations.configureHTTPServerPipeline()
                try channel.pipeline.syncOperations.addHandler(NIOHTTPServer.Hello(served.unanswered))
            })
    }

    private static func echo(_ count: Int, isHosted: Bool, _ ops: Int) -> Measurement {
        serve(
            count, isHosted, { perf_client_start($0, Int32(count), warmup, ops) }, ops,
            childHandlers: { channel, served, loop in
                let connection = try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
                served.tasks.enter()
                Task(executorPreference: loop) {
                    // A client that leaves with answers unread resets the connection.
                    try? await connection.executeThenClose { inbound, outbound in
                        for try await bytes in inbound { try await outbound.write(bytes) }
                    }
                    served.tasks.leave()
                }
            })
    }

    /// What the connections of a run share.
    private struct Served: Sendable {
        let unanswered: OnLoop<perf_countdown>
        let tasks = DispatchGroup()
    }

    /// Serves until `count` connections are closed.
    private static func serve(
        _ count: Int, _ isHosted: Bool, _ start: @escaping @Sendable (UInt16) -> OpaquePointer?, _ ops: Int,
        childHandlers: @escaping @Sendable (any Channel, Served, RunLoop?) throws -> Void
    ) -> Measurement {
        measured(ops: ops) { meter in
            let (open, served) = (OnLoop(perf_countdown_make(count)), Served(unanswered: OnLoop(perf_countdown_make(.max))))
            defer { for countdown in [open, served.unanswered] { perf_countdown_free(countdown.pointer) } }
            withEventLoop(isHosted: isHosted) { eventLoop, loop in
                let done = DispatchSemaphore(value: 0)
                let server = try! ServerBootstrap(group: eventLoop)
                    .serverChannelOption(.backlog, value: 1_024)
                    .childChannelOption(.socketOption(.tcp_nodelay), value: 1)
                    .childChannelInitializer { channel in
                        channel.closeFuture.whenComplete { _ in if perf_countdown_hit(open.pointer) { done.signal() } }
                        return channel.eventLoop.makeCompletedFuture { try childHandlers(channel, served, loop) }
                    }
                    .bind(host: "127.0.0.1", port: 0).wait()
                let client = start(UInt16(server.localAddress!.port!))
                done.wait()
                served.tasks.wait()
                perf_client_join(client, meter.sample)
                try! server.close().wait()
            }
        }
    }

    private static func idle(isHosted: Bool, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            withEventLoop(isHosted: isHosted) { eventLoop, loop in
                loop?.perform(after: .seconds(3_600)) {}
                usleep(100_000)
                meter.begin()
                for _ in 0..<ops { sleep(1) }
                meter.end()
            }
        }
    }
}
