// What a server has for all of its connections.

#if HTTP

internal import EventLoop
internal import EventLoopStreams
import Synchronization

/// Constants, and one `LoopHost` for each loop. Thread-safe.
final class HTTPServerCore: Sendable {
    let options: HTTPServer.Options
    let label: String?
    let file: StaticString
    let line: UInt
    let respond: @Sendable (HTTPServer.Request) async throws -> HTTPServer.Response
    let hosts: [LoopHost]
    let isDraining = Atomic<Bool>(false)
    #if DEBUG
    /// How many bytes of files the kernel has sent by itself.
    let testsOnlyKernelBytes = Atomic<Int>(0)
    #endif

    init(
        _ loops: [RunLoop], _ mode: RunLoop.Mode, _ options: HTTPServer.Options, label: String?, file: StaticString, line: UInt,
        _ respond: @escaping @Sendable (HTTPServer.Request) async throws -> HTTPServer.Response
    ) {
        options.check(file, line)
        (self.options, self.label, self.file, self.line, self.respond) = (options, label, file, line, respond)
        hosts = loops.map { LoopHost($0, mode, options) }
    }

    var streamOptions: ByteStream.Options {
        var streams = ByteStream.Options()
        // A head that is not whole waits in the stream, which must not be full before the head is too long.
        streams.receiveLimit = max(65_536, min(options.headLimit, .max - 1_024) + 1_024)
        streams.writeTimeout = options.idleTimeout
        return streams
    }

    /// Serves a connection. In the connection's task; returns when it has ended and its handler has returned.
    func serve(_ stream: ByteStream) async { /* DOES CALLOUT */
        // The loop has ended: nobody serves the stream.
        guard stream.loop.isCurrent, let host = hosts.first(where: { $0.loop === stream.loop }) else { return stream.close() }
        await HTTPConnection(stream, self, host).serve()
    }

    /// From now on connections end when they are idle.
    func drain() { /* DOES CALLOUT */
        isDraining.store(true, ordering: .sequentiallyConsistent)
        for host in hosts { host.loop.perform(inModes: [host.mode]) { for connection in host.connections { connection.drain() } } }
    }

    /// The server is over.
    func finish() { /* DOES CALLOUT */ for host in hosts { host.finish() } }

    /// Whether the calling task is a handler's.
    var isRespondingInCurrentTask: Bool {
        guard let hash = withUnsafeCurrentTask(body: { $0?.hashValue }) else { return false }
        return hosts.contains { $0.connections.contains { $0.taskHash.load(ordering: .relaxed) == hash } }
    }

    /// Reports that a handler has failed.
    func warn(_ message: String) { /* DOES CALLOUT */
        Warnings.reportEach(.failedRequest, label: label, site: CreationSite(file, line), message)
    }
}

#endif
