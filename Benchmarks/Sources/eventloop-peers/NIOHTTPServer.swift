// W16 on SwiftNIO: the usual pipeline for HTTP/1.1, and a handler that answers with 64 bytes. Each loop is a group of its own with one
// thread, so that each has its listener.

import CPerfPeers
import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix

enum NIOHTTPServer {
    static func start(loops: Int) -> W16HTTP.Server {
        var port = 0
        let servers = (0..<loops).map { index in
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            try! group.next().submit { perf_pin_this_thread(Int32(index)) }.wait()
            let unanswered = OnLoop(perf_countdown_make(.max))
            // A port of the loopback is free, and may be shared.
            let listener = try! ServerBootstrap(group: group)
                .serverChannelOption(.backlog, value: 1024)
                .serverChannelOption(ChannelOptions.socket(SocketOptionLevel(SOL_SOCKET), SO_REUSEPORT), value: 1)
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.configureHTTPServerPipeline()
                        try channel.pipeline.syncOperations.addHandler(Hello(unanswered))
                    }
                }
                .bind(host: "127.0.0.1", port: port).wait()
            port = listener.localAddress!.port!
            return (group, unanswered)
        }
        return W16HTTP.Server(
            port: UInt16(port), answered: { servers.reduce(0) { $0 + (.max - perf_countdown_left($1.1.pointer)) } },
            stop: {
                for (group, unanswered) in servers {
                    try! group.syncShutdownGracefully()  // fails on the group's own thread only
                    perf_countdown_free(unanswered.pointer)
                }
            })
    }

    final class Hello: ChannelInboundHandler, Sendable {
        typealias InboundIn = HTTPServerRequestPart
        typealias OutboundOut = HTTPServerResponsePart
        private static let body = ByteBuffer(repeating: 0, count: Int(PERF_MESSAGE))
        private let unanswered: OnLoop<perf_countdown>

        init(_ unanswered: OnLoop<perf_countdown>) { self.unanswered = unanswered }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            guard case .end = Self.unwrapInboundIn(data) else { return }
            let headers: HTTPHeaders = ["Content-Type": "text/plain", "Content-Length": "64"]
            let head = HTTPResponseHead(version: .http1_1, status: .ok, headers: headers)
            context.write(Self.wrapOutboundOut(.head(head)), promise: nil)
            context.write(Self.wrapOutboundOut(.body(.byteBuffer(Self.body))), promise: nil)
            context.writeAndFlush(Self.wrapOutboundOut(.end(nil)), promise: nil)
            _ = perf_countdown_hit(unanswered.pointer)
        }
    }
}
