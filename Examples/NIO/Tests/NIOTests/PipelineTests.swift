// Rules proved here: NIO's own servers and clients work unchanged on a hosted event loop, beside timers, tasks and the events of a C library.

import CLibevent
import EventLoop
import EventLoopNIO
import NIOCore
import NIOHTTP1
import NIOPosix
import Synchronization
import TestSupport
import Testing

private final class Hello: ChannelInboundHandler, Sendable {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart
    let loop: RunLoop
    init(_ loop: RunLoop) { self.loop = loop }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .end = Self.unwrapInboundIn(data) else { return }
        let body = ByteBuffer(string: loop.isCurrent ? "on the loop" : "elsewhere")
        let headers: HTTPHeaders = ["Content-Length": "\(body.readableBytes)"]
        context.write(Self.wrapOutboundOut(.head(HTTPResponseHead(version: .http1_1, status: .ok, headers: headers))), promise: nil)
        context.write(Self.wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
        context.writeAndFlush(Self.wrapOutboundOut(.end(nil)), promise: nil)
    }
}

@Suite(.bounded) struct PipelineTests {
    @Test func `an HTTP/1 server answers, beside a timer and a C library's events`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let fired = Box(0)
            let calls = RepeatedEvent()
            try await host.runLoop.performAsync {
                RunLoop.current.add(RunLoop.Timer(every: .milliseconds(1)) { _ in fired.increment() })
                calls.begin()
            }
            let server = try await ServerBootstrap(group: host.eventLoop).childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.configureHTTPServerPipeline()
                    try channel.pipeline.syncOperations.addHandler(Hello(host.runLoop))
                }
            }.bind(host: "127.0.0.1", port: 0).get()
            let client = try await ClientBootstrap(group: host.eventLoop).connect(to: server.localAddress!) { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHTTPClientHandlers()
                    return try NIOAsyncChannel<HTTPClientResponsePart, HTTPClientRequestPart>(wrappingChannelSynchronously: channel)
                }
            }
            // The client's task is on the loop, too.
            let answers = try await Task(executorPreference: host.runLoop) {
                try await client.executeThenClose { inbound, outbound in
                    var (answers, parts) = (0, inbound.makeAsyncIterator())
                    for _ in 0..<200 {
                        let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/", headers: ["Host": "a"])
                        try await outbound.write(.head(head))
                        try await outbound.write(.end(nil))
                        while let part = try await parts.next() {
                            if case .body(let bytes) = part, String(buffer: bytes) == "on the loop" { answers += 1 }
                            if case .end = part { break }
                        }
                    }
                    return answers
                }
            }.value
            #expect(answers == 200)
            while fired.value == 0 || calls.count.load(ordering: .relaxed) == 0 {  // ends: within the test's limit
                try await host.runLoop.performAsync {}
            }
            try await host.runLoop.performAsync { calls.end() }
            try await server.close()
            await host.end()
        }
    }

    @Test func `the two directions of an echo server lose no byte under load from many connections`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let server = try await ServerBootstrap(group: host.eventLoop)
                .bind(host: "127.0.0.1", port: 0) { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
                    }
                }
            let address = server.channel.localAddress!
            let serving = Task(executorPreference: host.runLoop) {
                try await server.executeThenClose { connections in
                    try await withThrowingDiscardingTaskGroup { tasks in
                        for try await connection in connections {
                            tasks.addTask {
                                try? await connection.executeThenClose { inbound, outbound in
                                    for try await bytes in inbound { try await outbound.write(bytes) }
                                }
                            }
                        }
                    }
                }
            }
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                for _ in 0..<20 {
                    tasks.addTask {
                        let client = try await ClientBootstrap(group: host.eventLoop).connect(to: address) { channel in
                            channel.eventLoop.makeCompletedFuture {
                                try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
                            }
                        }
                        try await client.executeThenClose { inbound, outbound in
                            var (left, parts) = (100_000, inbound.makeAsyncIterator())
                            try await outbound.write(ByteBuffer(repeating: 7, count: left))
                            while left > 0, let bytes = try await parts.next() { left -= bytes.readableBytes }
                            #expect(left == 0)
                        }
                    }
                }
                try await tasks.waitForAll()
            }
            serving.cancel()
            try? await serving.value
            await host.end()
        }
    }
}
