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
func serveEcho(on loop: RunLoop, listeningOn address: RunLoop.SocketAddress) async throws {
    // Signals are counted from here on, so this comes before the server.
    var terminations = loop.signals(SIGTERM).makeAsyncIterator()
    let server = try StreamServer(listeningOn: address, on: [loop], connectionLimit: 1_000) { stream in
        do {
            while let bytes = try await stream.read() { try await stream.write(bytes) }
        } catch {
            print("a client is gone: \(error)")
        }
    }
    print("listening on \(server.localAddress)")
    _ = try await terminations.next()
    await server.shutdown(grace: .seconds(5))
}

@Suite(.bounded) struct DocumentedFromLibuv {
    @Test func `an echo server answers, and ends at SIGTERM`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "echo")
            let loop = thread.runLoop
            let folder = makeTemporaryDirectory(in: "/tmp")
            defer { removeFlatDirectory(folder) }
            let address = RunLoop.SocketAddress.unix(path: folder + "/echo")
            let serving = Task { try await serveEcho(on: loop, listeningOn: address) }
            try await suspendUntil("the task watches SIGTERM") { loop.debugDescription.contains("signal \(SIGTERM)") }
            try await suspendUntil("the server listens") { loop.debugDescription.contains("listener on \(address)") }
            let stream = try await ByteStream.connect(to: address, on: loop)
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
