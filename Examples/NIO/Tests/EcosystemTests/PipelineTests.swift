// Rules proved here: HTTP/2 of swift-nio-http2 and TLS of swift-nio-ssl work unchanged on a hosted event loop, for both sides, beside a timer
// and a C library's event.

import EventLoop
import EventLoopNIO
import NIOCore
import NIOHTTP1
import NIOHTTP2
import NIOPosix
import NIOSSL
import TestSupport
import Testing

/// Collects a response, one request a stream.
private final class Collecting: ChannelInboundHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart
    private var text = ""
    private let answer: EventLoopPromise<String>
    init(_ answer: EventLoopPromise<String>) { self.answer = answer }

    func channelActive(context: ChannelHandlerContext) {
        let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/", headers: ["Host": "localhost"])
        context.write(Self.wrapOutboundOut(.head(head)), promise: nil)
        context.writeAndFlush(Self.wrapOutboundOut(.end(nil)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch Self.unwrapInboundIn(data) {
        case .head: break
        case .body(let bytes): text += String(buffer: bytes)
        case .end: answer.succeed(text)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { answer.fail(error) }
    func channelInactive(context: ChannelHandlerContext) { answer.fail(ChannelError.eof) }
}

@Suite(.bounded) struct PipelineTests {
    @Test func `HTTP/2: 200 streams over one connection`() async throws {
        try await withBusyHost { host in
            let server = try await ServerBootstrap(group: host.eventLoop).childChannelInitializer { channel in
                channel.configureHTTP2Pipeline(mode: .server, connectionConfiguration: .init(), streamConfiguration: .init()) { stream in
                    stream.eventLoop.makeCompletedFuture {
                        try stream.pipeline.syncOperations.addHandler(HTTP2FramePayloadToHTTP1ServerCodec())
                        try stream.pipeline.syncOperations.addHandler(Answering(host.runLoop))
                    }
                }.map { _ in }
            }.bind(host: "127.0.0.1", port: 0).get()
            let (client, streams) = try await ClientBootstrap(group: host.eventLoop).connect(to: server.localAddress!) { channel in
                channel.eventLoop.makeCompletedFuture {
                    (
                        channel,
                        try channel.pipeline.syncOperations.configureHTTP2Pipeline(
                            mode: .client, connectionConfiguration: .init(), streamConfiguration: .init()
                        ) { $0.eventLoop.makeSucceededVoidFuture() }
                    )
                }
            }
            for _ in 1...200 {
                let answer = host.eventLoop.makePromise(of: String.self)
                let stream = try await streams.createStreamChannel { stream in
                    stream.eventLoop.makeCompletedFuture {
                        try stream.pipeline.syncOperations.addHandler(HTTP2FramePayloadToHTTP1ClientCodec(httpProtocol: .http))
                        try stream.pipeline.syncOperations.addHandler(Collecting(answer))
                    }
                }.get()
                #expect(try await answer.futureResult.get() == "on the loop")
                stream.close(promise: nil)
            }
            try await client.close()
            try await server.close()
        }
    }

    @Test func `TLS: 50 connections with a handshake each, and HTTP/1 inside`() async throws {
        let identity = try Identity()
        let serverContext = try NIOSSLContext(configuration: identity.server)
        let clientContext = try NIOSSLContext(configuration: identity.client)
        try await withBusyHost { host in
            let server = try await ServerBootstrap(group: host.eventLoop).childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: serverContext))
                    try channel.pipeline.syncOperations.configureHTTPServerPipeline()
                    try channel.pipeline.syncOperations.addHandler(Answering(host.runLoop))
                }
            }.bind(host: "127.0.0.1", port: 0).get()
            for _ in 1...50 {
                let answer = host.eventLoop.makePromise(of: String.self)
                let client = try await ClientBootstrap(group: host.eventLoop).channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        let tls = try NIOSSLClientHandler(context: clientContext, serverHostname: "localhost")
                        try channel.pipeline.syncOperations.addHandler(tls)
                        try channel.pipeline.syncOperations.addHTTPClientHandlers()
                        try channel.pipeline.syncOperations.addHandler(Collecting(answer))
                    }
                }.connect(to: server.localAddress!).get()
                #expect(try await answer.futureResult.get() == "on the loop")
                try? await client.close()
            }
            try await server.close()
        }
    }
}
