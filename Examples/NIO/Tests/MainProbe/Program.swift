// A program whose main thread is one of NIO's event loops with the main loop on it. Started by MainThreadTests.
//
//   nio-main-probe PART      prints what happened, a line for each event; the exit code is 0

import CLibevent
import EventLoop
import EventLoopNIO
import Glibc
import NIOCore
import NIOPosix

// Glibc's overlay hides fork from Swift.
@_silgen_name("fork") private func systemFork() -> Int32
@_silgen_name("gettid") private func systemThread() -> Int32

private var isMainThread: Bool { getpid() == systemThread() }

/// At once: what `print` keeps would be written a second time by a child.
private func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = write(1, bytes, bytes.count)
}

@main
enum Program {
    static func main() throws {
        // What the tests' process has open for other tests.
        for descriptor in Int32(3)..<1_024 { close(descriptor) }
        switch CommandLine.arguments.dropFirst().first {
        case "main-actor": try serve(mainActor)
        case "fork": try serve(forks)
        case "exec": try serve(exec)
        case "sigterm": try serve(untilSignal)
        case "main-thread-ends": serveWithoutMainThread()
        default: say("usage: nio-main-probe main-actor|fork|exec|sigterm|main-thread-ends")
        }
        say("run returned")
    }

    private static func serve(_ part: @escaping @Sendable (NIOHost) async throws -> Void) throws {
        try NIOHost.run { host in
            Task(executorPreference: host.runLoop) {
                do { try await part(host) } catch { say("failed: \(error)") }
                try? await host.eventLoop.shutdownGracefully()
            }
        }
    }

    /// On another thread, when the main thread has ended.
    private static func serveWithoutMainThread() {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        Task.detached {
            while access("/proc/self/fd/1", F_OK) == 0 { await Task.yield() }  // ends: with the main thread
            do {
                let host = try await NIOHost.start(on: group.next())
                say("bytes: \(try await echo(on: host))")
                await host.end()
            } catch { say("failed: \(error)") }
            exit(0)
        }
        pthread_exit(nil)
    }

    /// The main actor's code, NIO's tasks, a timer and an event of a C library take turns on the main thread.
    @MainActor private static func mainActor(_ host: NIOHost) async throws {
        say("main loop: \(host.runLoop === RunLoop.main), main thread: \(isMainThread)")
        for _ in 1...3 {
            say("event loop: \(host.eventLoop.inEventLoop)")
            say("NIO: \(try await host.eventLoop.submit { isMainThread && RunLoop.main.isCurrent }.get())")
        }
        await withCheckedContinuation { continuation in
            host.runLoop.perform(after: .milliseconds(2)) { continuation.resume() }
        }
        say("C library: \(await event())")
        // A channel's bytes, and not only NIO's tasks.
        say("bytes: \(try await echo(on: host))")
    }

    /// Where libevent calls an event of a millisecond.
    @MainActor private static func event() async -> Bool {
        await withCheckedContinuation { continuation in
            let context = Unmanaged.passRetained(Waiting(continuation)).toOpaque()
            RunLoop.main.withEventBase { base in
                var delay = timeval(tv_sec: 0, tv_usec: 1_000)
                event_base_once(
                    base, -1, Int16(EV_TIMEOUT),
                    { _, _, context in
                        Unmanaged<Waiting>.fromOpaque(context!).takeRetainedValue().continuation.resume(returning: isMainThread)
                    }, context, &delay)
            }
        }
    }

    private static func echo(on host: NIOHost) async throws -> Int {
        let server = try await ServerBootstrap(group: host.eventLoop).childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Echo()) }
        }.bind(host: "127.0.0.1", port: 0).get()
        let client = try await ClientBootstrap(group: host.eventLoop).connect(to: server.localAddress!) { channel in
            channel.eventLoop.makeCompletedFuture { try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel) }
        }
        let count = try await client.executeThenClose { inbound, outbound in
            try await outbound.write(ByteBuffer(repeating: 1, count: 50_000))
            var count = 0
            for try await bytes in inbound {
                count += bytes.readableBytes
                if count == 50_000 { break }
            }
            return count
        }
        try await server.close()
        return count
    }

    /// A child that ends at once leaves the parent's event loop alone.
    @MainActor private static func forks(_ host: NIOHost) async throws {
        for code in [Int32(3), 4] {
            let child = systemFork()
            if child == 0 { _exit(code) }
            var status: Int32 = 0
            waitpid(child, &status, 0)
            say("child: \(status >> 8)")
            say("bytes: \(try await echo(on: host))")
        }
    }

    /// A program that the child becomes has none of the host's descriptors. NIO does not close its epoll set on exec. `ls` lists its own, because
    /// the shell closes pipes meanwhile.
    @MainActor private static func exec(_ host: NIOHost) async throws {
        let child = systemFork()
        if child == 0 {
            let arguments = ["/bin/sh", "-c", "ls -l /proc/self/fd | grep -o 'anon_inode.*'; true"]
            let words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
            execv("/bin/sh", words)
            _exit(1)
        }
        var status: Int32 = 0
        waitpid(child, &status, 0)
        say("child: \(status)")
        say("bytes: \(try await echo(on: host))")
    }

    @MainActor private static func untilSignal(_ host: NIOHost) async throws {
        let (arrived, continuation) = AsyncStream<Void>.makeStream()
        let source = try RunLoop.SignalSource(signal: SIGTERM) { _, _ in continuation.finish() }
        RunLoop.main.add(source)
        say("ready")
        for await _ in arrived {}
        say("signal")
        source.invalidate()
    }
}

private final class Waiting: Sendable {
    let continuation: CheckedContinuation<Bool, Never>
    init(_ continuation: CheckedContinuation<Bool, Never>) { self.continuation = continuation }
}

private final class Echo: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    func channelRead(context: ChannelHandlerContext, data: NIOAny) { context.writeAndFlush(data, promise: nil) }
}
