// Rules proved here: AsyncHTTPClient and Hummingbird take a hosted event loop as their group, unchanged. Their code is on the run loop's thread
// where they use NIO's; their tasks are where they prefer to be.

import AsyncHTTPClient
import EventLoop
import EventLoopNIO
import Hummingbird
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import ServiceLifecycle
import TestSupport
import Testing

private actor Counting {
    private let loop: RunLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private var count = 0
    init(on loop: RunLoop) { self.loop = loop }
    func next(_ eventLoop: any NIOCore.EventLoop) -> String {
        count += 1
        return "\(count) \(eventLoop.inEventLoop)"
    }
}

@Suite(.bounded) struct LibraryTests {
    @Test(arguments: [false, true]) func `AsyncHTTPClient gets 100 answers of a server on the same loop`(isSecure: Bool) async throws {
        let identity = try Identity()
        let context = try NIOSSLContext(configuration: identity.server)
        try await withBusyHost { host in
            let server = try await ServerBootstrap(group: host.eventLoop).childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if isSecure { try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context)) }
                    try channel.pipeline.syncOperations.configureHTTPServerPipeline()
                    try channel.pipeline.syncOperations.addHandler(Answering(host.runLoop))
                }
            }.bind(host: "127.0.0.1", port: 0).get()
            let client = HTTPClient(
                eventLoopGroupProvider: .shared(host.eventLoop), configuration: HTTPClient.Configuration(tlsConfiguration: identity.client))
            let port = server.localAddress!.port!
            try await withThrowingTaskGroup(of: String.self) { group in
                for _ in 1...100 {
                    group.addTask(executorPreference: host.runLoop) {
                        let request = HTTPClientRequest(url: "\(isSecure ? "https" : "http")://localhost:\(port)/")
                        return String(buffer: try await client.execute(request, timeout: .seconds(120)).body.collect(upTo: 100))
                    }
                }
                for try await text in group { #expect(text == "on the loop") }
            }
            try await client.shutdown()
            try await server.close()
        }
    }

    @Test func `Hummingbird serves an actor of the loop, and ends when its service group does`() async throws {
        try await withBusyHost { host in
            let counting = Counting(on: host.runLoop)
            let router = Router()
            router.get("/") { _, _ in await counting.next(host.eventLoop) }
            let (ports, found) = AsyncStream.makeStream(of: Int.self)
            var logger = Logger(label: "test")
            logger.logLevel = .critical
            let application = Application(
                router: router, configuration: ApplicationConfiguration(address: .hostname("127.0.0.1", port: 0)),
                onServerRunning: { found.yield($0.localAddress?.port ?? 0) }, eventLoopGroupProvider: .shared(host.eventLoop),
                logger: logger)
            let services = ServiceGroup(configuration: ServiceGroupConfiguration(services: [application], logger: logger))
            let running = Task(executorPreference: host.runLoop) { try await services.run() }
            var iterator = ports.makeAsyncIterator()
            let port = try #require(await iterator.next(isolation: #isolation))
            let client = HTTPClient(eventLoopGroupProvider: .shared(host.eventLoop))
            for number in 1...50 {
                let request = HTTPClientRequest(url: "http://127.0.0.1:\(port)/")
                let answer = try await client.execute(request, timeout: .seconds(120)).body.collect(upTo: 100)
                #expect(String(buffer: answer) == "\(number) true")
            }
            try await client.shutdown()
            await services.triggerGracefulShutdown()
            try await running.value
        }
    }
}
