// The scenario of byte streams: a server, a client, their options, a name, and the end of a peer.

import CFaults
import Dispatch
import EventLoop
import EventLoopStreams
import Synchronization

#if canImport(Glibc)
import Glibc
#endif

extension Scenario {
    static let streams = Scenario(name: "streams") { _ in
        let thread = try RunLoopThread(name: "streams")
        defer {
            thread.stop()
            thread.join()
        }
        let loop = thread.runLoop
        let (finished, done) = (Counter(), DispatchSemaphore(value: 0))
        let outcome = Mutex<Result<[UInt8], any Error>?>(nil)
        var options = ByteStream.Options()
        options.receiveTimeout = .seconds(2)
        options.socket.keepAlive = ByteStream.KeepAlive()
        options.socket.sendBufferSize = 65_536
        let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop], options: options) { stream in
            stream.onPeerFinish { _ in finished.increment() }
            do {
                try await stream.write(try await stream.read(exactly: 4))
                _ = try await stream.read()
            } catch {}
        }
        Task(executorPreference: loop) { [options] in
            let result: Result<[UInt8], any Error>
            do { result = .success(try await Self.echo(server.localAddress, options, on: loop)) } catch { result = .failure(error) }
            await server.shutdown(grace: .seconds(1))
            outcome.withLock { $0 = result }
            done.signal()
        }
        try require(done.wait(timeout: .now() + .seconds(8)) == .success, "the client or the server does not end")
        try require(try outcome.withLock { try $0?.get() } == Array("ping".utf8), "another answer")
    }

    private static func echo(_ address: RunLoop.SocketAddress, _ options: ByteStream.Options, on loop: RunLoop) async throws -> [UInt8] {
        _ = try await loop.addresses(ofHost: "localhost", port: 80)
        let client = try await ByteStream.connect(to: address, timeout: .seconds(2), on: loop, options: options)
        defer { client.close() }
        try await client.write("ping")
        return try await client.read(exactly: 4)
    }
}
