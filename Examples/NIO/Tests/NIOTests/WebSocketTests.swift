// Rule proved here: NIO's WebSockets work unchanged on a hosted event loop; the upgrade changes the pipeline while the run loop works, too.

import EventLoop
import EventLoopNIO
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOWebSocket
import TestSupport
import Testing

private enum Upgrade: Sendable {
    case webSocket(NIOAsyncChannel<WebSocketFrame, WebSocketFrame>)
    case none
}

@Suite(.bounded) struct WebSocketTests {
    @Test func `frames go both ways, and each side answers on the loop`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let fired = Box(0)
            let timer = RunLoop.Timer(every: .milliseconds(1)) { _ in fired.increment() }
            host.runLoop.add(timer)
            let server = try await ServerBootstrap(group: host.eventLoop).bind(host: "127.0.0.1", port: 0) { channel in
                channel.eventLoop.makeCompletedFuture {
                    let upgrader = NIOTypedWebSocketServerUpgrader<Upgrade>(
                        shouldUpgrade: { channel, _ in channel.eventLoop.makeSucceededFuture(HTTPHeaders()) },
                        upgradePipelineHandler: { channel, _ in
                            channel.eventLoop.makeCompletedFuture { .webSocket(try NIOAsyncChannel(wrappingChannelSynchronously: channel)) }
                        })
                    return try channel.pipeline.syncOperations.configureUpgradableHTTPServerPipeline(
                        configuration: .init(
                            upgradeConfiguration: .init(
                                upgraders: [upgrader],
                                notUpgradingCompletionHandler: { $0.eventLoop.makeSucceededFuture(.none) })))
                }
            }
            let serving = Task(executorPreference: host.runLoop) {
                try await server.executeThenClose { connections in
                    for try await connection in connections {
                        guard case .webSocket(let channel) = try await connection.get() else { continue }
                        try await channel.executeThenClose { inbound, outbound in
                            for try await frame in inbound {
                                if frame.opcode == .connectionClose { break }
                                let place = host.eventLoop.inEventLoop ? "loop" : "elsewhere"
                                let answer = ByteBuffer(string: "\(String(buffer: frame.unmaskedData)) \(place)")
                                try await outbound.write(WebSocketFrame(fin: true, opcode: .text, data: answer))
                            }
                        }
                    }
                }
            }
            let upgrade = try await ClientBootstrap(group: host.eventLoop).connect(to: server.channel.localAddress!) { channel in
                channel.eventLoop.makeCompletedFuture {
                    let upgrader = NIOTypedWebSocketClientUpgrader<Upgrade>(upgradePipelineHandler: { channel, _ in
                        channel.eventLoop.makeCompletedFuture { .webSocket(try NIOAsyncChannel(wrappingChannelSynchronously: channel)) }
                    })
                    let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/", headers: ["Host": "a", "Content-Length": "0"])
                    return try channel.pipeline.syncOperations.configureUpgradableHTTPClientPipeline(
                        configuration: .init(
                            upgradeConfiguration: .init(
                                upgradeRequestHead: head, upgraders: [upgrader],
                                notUpgradingCompletionHandler: { $0.eventLoop.makeSucceededFuture(.none) })))
                }
            }
            guard case .webSocket(let client) = try await upgrade.get() else {
                Issue.record("no upgrade")
                return
            }
            let answers = try await Task(executorPreference: host.runLoop) {
                try await client.executeThenClose { inbound, outbound in
                    var (answers, frames) = ([String](), inbound.makeAsyncIterator())
                    for number in 1...100 {
                        let data = ByteBuffer(string: "\(number)")
                        try await outbound.write(WebSocketFrame(fin: true, opcode: .text, maskKey: .random(), data: data))
                        if let frame = try await frames.next() { answers.append(String(buffer: frame.unmaskedData)) }
                    }
                    try await outbound.write(WebSocketFrame(fin: true, opcode: .connectionClose, maskKey: .random(), data: ByteBuffer()))
                    return answers
                }
            }.value
            #expect(answers == (1...100).map { "\($0) loop" })
            try await suspendUntil("the timer fires") { fired.value > 0 }
            timer.invalidate()
            serving.cancel()
            try? await serving.value
            await host.end()
        }
    }
}
