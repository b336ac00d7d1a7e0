// A hosted event loop of its own for each test, whose run loop is busy: a timer, and an event of libevent.

import CLibevent
import EventLoop
import EventLoopNIO
import NIOCore
import NIOHTTP1
import NIOPosix
import Synchronization
import TestSupport
import Testing

/// Calls `body` with a host. A timer of the run loop and an event of a C library fire meanwhile, which is checked.
func withBusyHost(_ body: (NIOHost) async throws -> Void) async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let host = try await NIOHost.start(on: group.next())
    let fired = Box(0)
    let event = RepeatedEvent()
    let timer = RunLoop.Timer(every: .milliseconds(1)) { _ in fired.increment() }
    try await host.runLoop.performAsync {
        RunLoop.current.add(timer)
        event.begin()
    }
    do {
        try await body(host)
        try await suspendUntil("the timer and the event fire") { fired.value > 0 && event.count.load(ordering: .relaxed) > 0 }
    } catch {
        Issue.record(error)
    }
    timer.invalidate()
    try await host.runLoop.performAsync { event.end() }
    await host.end()
    try await group.shutdownGracefully()
}

/// Answers every request with the place where it runs.
final class Answering: ChannelInboundHandler, Sendable {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart
    private let loop: RunLoop
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
