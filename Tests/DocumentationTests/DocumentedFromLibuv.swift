// The program of docs/from-libuv.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Sends back what each client sends, until SIGTERM.
func serveEcho(on loop: RunLoop, port: UInt16) async throws {
    let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: port), on: [loop], connectionLimit: 1_000) { stream in
        do {
            while let bytes = try await stream.read() { try await stream.write(bytes) }
        } catch {
            print("a client is gone: \(error)")
        }
    }
    print("listening on \(server.localAddress)")
    for try await _ in loop.signals(SIGTERM) { break }
    await server.shutdown(grace: .seconds(5))
}

@Suite(.bounded) struct DocumentedFromLibuv {
    @Test func `an echo server answers, and ends at SIGTERM`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "echo")
            let loop = thread.runLoop
            let path = RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: try freePort())
            guard case .ipv4(_, let port) = path else { return }
            let serving = Task { try await serveEcho(on: loop, port: port) }
            try await suspendUntil("the task watches SIGTERM") { loop.debugDescription.contains("signal \(SIGTERM)") }
            let stream = try await ByteStream.connect(to: path, on: loop)
            try await stream.write("hello")
            #expect(try await stream.read(exactly: 5) == Array("hello".utf8))
            stream.close()
            // The threads that run tests block signals.
            try plainThread {
                var signals = sigset_t()
                sigemptyset(&signals)
                sigaddset(&signals, SIGTERM)
                pthread_sigmask(SIG_UNBLOCK, &signals, nil)
                raise(SIGTERM)
            }.join()
            try await serving.value
            thread.stop()
            await thread.join()
        }
    }
}

/// A port that nobody uses at the moment.
private func freePort() throws -> UInt16 {
    let listener = try RunLoop.SocketSource(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) { _, descriptor, _ in close(descriptor) }
    defer { listener.invalidate() }
    guard case .ipv4(_, let port)? = listener.localAddress else { throw StreamError.closed }
    return port
}
