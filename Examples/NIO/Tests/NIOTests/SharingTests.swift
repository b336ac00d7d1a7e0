// Rules proved here (docs/from-nio.md):
// - Only the hosted mode runs; a handler of either side that works for long delays the other side until it returns.
// - Channels, tasks of NIO and a run loop that always have work take turns.
// - A thread that ends without `end()` ends its run loop. `end()` afterwards touches no number that somebody else has by then.

import EventLoop
import EventLoopNIO
import Glibc
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

private final class Echo: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    let echoes = Atomic<Int>(0)
    func channelActive(context: ChannelHandlerContext) { context.writeAndFlush(NIOAny(ByteBuffer(string: "x")), promise: nil) }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        echoes.add(1, ordering: .relaxed)
        context.writeAndFlush(data, promise: nil)
    }
}

/// Two connected channels of the event loop that send each other a byte for ever.
private func pingPong(on eventLoop: any NIOCore.EventLoop) async throws -> (Echo, [any Channel]) {
    let echo = Echo()
    let initializer: @Sendable (any Channel) -> EventLoopFuture<Void> = { channel in
        channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(echo) }
    }
    var ends: [Int32] = [-1, -1]
    try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    var channels: [any Channel] = []
    for end in ends {
        channels.append(try await ClientBootstrap(group: eventLoop).channelInitializer(initializer).withConnectedSocket(end).get())
    }
    return (echo, channels)
}

@Suite(.bounded) struct SharingTests {
    @Test func `only the hosted mode runs`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next(), mode: "m")
            let order = Locked<[String]>([])
            host.runLoop.perform(inModes: [.default]) { order.withLock { $0.append("default") } }
            for _ in 1...3 { try await host.runLoop.performAsync(inModes: ["m"]) { order.withLock { $0.append("m") } } }
            #expect(order.withLock { $0 } == ["m", "m", "m"])
            await host.end()
            // What the mode held back is performed when it is hosted.
            let second = try await NIOHost.start(on: group.next())
            try await second.runLoop.performAsync {}
            #expect(order.withLock { $0.last } == "default")
            await second.end()
        }
    }

    @Test func `a handler of the run loop that works for long delays NIO, and a handler of NIO the run loop`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let order = Locked<[String]>([])
            let mayEnd = Gate()
            host.runLoop.perform {
                host.eventLoop.execute { order.withLock { $0.append("NIO") } }
                mayEnd.wait()
                order.withLock { $0.append("handler") }
            }
            mayEnd.open()
            // Each is awaited before what it adds.
            try await host.runLoop.performAsync {}
            try await host.eventLoop.submit {}.get()
            let mayGoOn = Gate()
            host.eventLoop.execute {
                host.runLoop.perform { order.withLock { $0.append("perform") } }
                mayGoOn.wait()
                order.withLock { $0.append("task") }
            }
            mayGoOn.open()
            try await host.eventLoop.submit {}.get()
            try await host.runLoop.performAsync {}
            #expect(order.withLock { $0 } == ["handler", "NIO", "task", "perform"])
            await host.end()
        }
    }

    @Test func `channels that always have bytes and a run loop that always has work take turns`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let (echo, channels) = try await pingPong(on: host.eventLoop)
            let (performed, isOver) = (Box(0), Box(false))
            let endless = Endless(host.runLoop, performed, isOver)
            endless.post()
            // Each side goes on while the other one never pauses.
            for _ in 1...20 {
                let (echoes, performs) = (echo.echoes.load(ordering: .relaxed), performed.value)
                try await suspendUntil("both sides have worked") {
                    echo.echoes.load(ordering: .relaxed) > echoes + 10 && performed.value > performs + 10
                }
            }
            isOver.value = true
            // The end of one is the end of the other.
            for channel in channels { try? await channel.close() }
            await host.end()
        }
    }

    @Test func `a task that awaits NIO for ever, on NIO's thread, starves no channel`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let (echo, channels) = try await pingPong(on: host.eventLoop)
            let (turns, isOver) = (Box(0), Box(false))
            // Each turn is a task of NIO that resumes a job of the run loop, which adds a task of NIO.
            let task = Task(executorPreference: host.runLoop) {
                while !isOver.value {
                    try await host.eventLoop.submit {}.get()
                    turns.increment()
                }
            }
            for _ in 1...20 {
                let (echoes, before) = (echo.echoes.load(ordering: .relaxed), turns.value)
                try await suspendUntil("both sides have worked") {
                    echo.echoes.load(ordering: .relaxed) > echoes + 10 && turns.value > before + 10
                }
            }
            isOver.value = true
            try await task.value
            for channel in channels { try? await channel.close() }
            await host.end()
        }
    }

    @Test func `jobs of tasks that channel handlers resume are all run, also when the loop sleeps in between`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            var ends: [Int32] = [-1, -1]
            try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
            let end = ends[0]
            let channel = try await ClientBootstrap(group: host.eventLoop).withConnectedSocket(end) { channel in
                channel.eventLoop.makeCompletedFuture { try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel) }
            }
            let task = Task(executorPreference: host.runLoop) {
                try await channel.executeThenClose { inbound, outbound in
                    for try await bytes in inbound {
                        #expect(host.eventLoop.inEventLoop)
                        try await outbound.write(bytes)
                    }
                }
            }
            // One byte at a time, each after the answer to the one before: a job that is late by one would never come.
            for _ in 1...500 {
                try #require(write(ends[1], "x", 1) == 1)
                try waitUntilReadable(ends[1], "the answer")
                var byte: UInt8 = 0
                try #require(read(ends[1], &byte, 1) == 1)
            }
            close(ends[1])
            try await task.value
            await host.end()
        }
    }

    @Test func `a pass of the run loop takes what was posted before, and then NIO has its turn`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let order = Locked<[String]>([])
            try await host.runLoop.performAsync {
                host.eventLoop.execute { order.withLock { $0.append("NIO") } }
                // Posted in this pass: it is performed in the next one.
                RunLoop.current.perform { order.withLock { $0.append("perform") } }
            }
            try await host.runLoop.performAsync {}
            try await host.eventLoop.submit {}.get()
            #expect(order.withLock { $0 } == ["NIO", "perform"])
            await host.end()
        }
    }

    @Test func `a thread that ends without an end ends its run loop, and what is posted then is refused`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let host = try await NIOHost.start(on: group.next())
        let loop = host.runLoop
        let isReleased = Box(false)
        let token = Token { isReleased.value = true }
        loop.perform(after: .seconds(3_600)) { _ = token }
        try await loop.performAsync {}
        try await group.shutdownGracefully()
        // NIO joins its threads a moment after it has said that it has shut down.
        try await suspendUntil("the loop ends") { !loop.isValid }
        #expect(!loop.perform {})
        await #expect(throws: (any Error).self) { try await loop.performAsync {} }
        await host.end()
    }

    @Test func `an end after the shutdown leaves the numbers alone that somebody else has by then`() async throws {
        for _ in 1...20 {
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            let host = try await NIOHost.start(on: group.next())
            try await group.shutdownGracefully()
            // The lowest free numbers: among them those that the host had.
            let files = (0..<16).map { _ in open("/dev/null", O_RDONLY | O_CLOEXEC) }
            let identities = files.map(identity)
            await host.end()
            #expect(files.map(identity) == identities)
            for file in files { close(file) }
        }
    }
}

/// What file a descriptor refers to.
private func identity(_ descriptor: Int32) -> [UInt64] {
    var status = stat()
    if fstat(descriptor, &status) != 0 { return [] }
    return [UInt64(status.st_dev), UInt64(status.st_ino), UInt64(status.st_rdev)]
}

private final class Endless: Sendable {
    private let loop: RunLoop
    private let performed: Box<Int>
    private let isOver: Box<Bool>
    init(_ loop: RunLoop, _ performed: Box<Int>, _ isOver: Box<Bool>) {
        (self.loop, self.performed, self.isOver) = (loop, performed, isOver)
    }
    func post() {
        loop.perform { [self] in
            performed.increment()
            if !isOver.value { post() }
        }
    }
}

private final class Token: Sendable {
    private let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    deinit { body() }
}
