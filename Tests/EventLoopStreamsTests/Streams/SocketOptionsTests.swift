// Rules proved here (ByteStream+Socket.swift):
// - Options are set on the socket. What has no meaning there, and what the kernel refuses, is a typed error, and the descriptor is closed.
// - `peerCredentials` and `withDescriptor` are nil where there is nothing, and after the end.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import EventLoopTesting
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private func option(_ stream: ByteStream, _ level: Int32, _ name: Int32) -> Int32? {
    stream.withDescriptor { descriptor in
        var (value, length) = (Int32(-1), socklen_t(4))
        getsockopt(descriptor, level, name, &value, &length)
        return value
    }
}

private func options(_ change: (inout ByteStream.SocketOptions) -> Void) -> ByteStream.Options {
    var options = ByteStream.Options()
    change(&options.socket)
    return options
}

private func unsupported(_ error: RunLoop.SourceError?) -> Bool { if case .system(_, EOPNOTSUPP) = error { true } else { false } }

private func invalid(_ error: RunLoop.SourceError?) -> Bool {
    if case .system(let what, EINVAL) = error { what.hasPrefix("setsockopt(") } else { false }
}

@Suite(.bounded) struct SocketOptionsTests {
    #if os(Linux)
    @Test func `the options of TCP are set, at the client and at the server`() async throws {
        try await withLoops(1) { loops in
            let all = options {
                $0.noDelay = false
                $0.keepAlive = .init(idle: .milliseconds(6_001), interval: .seconds(3), count: 4)
                $0.sendBufferSize = 20_000
                $0.receiveBufferSize = 30_000
                $0.unacknowledgedTimeout = .microseconds(5_000_001)
                $0.localAddress = .ipv4(host: "127.0.0.9", port: 0)
            }
            let served = Box<ByteStream?>(nil)
            let server = try StreamServer(listeningOn: anyPort, on: loops, options: all) { stream in
                served.value = stream
                _ = try? await stream.read()
            }
            let client = try await ByteStream.connect(to: server.localAddress, on: loops[0], options: all)
            guard case .ipv4("127.0.0.9", _) = client.localAddress else { throw Failure() }
            try await suspendUntil("it is served") { served.value != nil }
            for stream in [client, served.value!] {
                let tcp = Int32(IPPROTO_TCP)
                #expect(option(stream, tcp, TCP_NODELAY) == 0 && option(stream, SOL_SOCKET, SO_KEEPALIVE) == 1)
                #expect(option(stream, tcp, TCP_KEEPIDLE) == 7 && option(stream, tcp, TCP_KEEPINTVL) == 3)
                #expect(option(stream, tcp, TCP_KEEPCNT) == 4 && option(stream, tcp, 18 /* TCP_USER_TIMEOUT */) == 5_001)
                #expect(option(stream, SOL_SOCKET, SO_SNDBUF) == 40_000 && option(stream, SOL_SOCKET, SO_RCVBUF) == 60_000)
            }
            let plain = try await ByteStream.connect(to: server.localAddress, on: loops[0])
            #expect(option(plain, Int32(IPPROTO_TCP), TCP_NODELAY) == 1 && option(plain, SOL_SOCKET, SO_KEEPALIVE) == 0)
            for stream in [client, plain] { stream.close() }
            try await suspendUntil("the end") { client.withDescriptor { $0 } == nil }
            await server.shutdown(grace: .zero)
        }
    }
    #endif

    @Test func `values that the kernel refuses are typed errors, and the socket is closed`() throws {
        try inManualTime { loop, _, _ in
            let wrong: [(inout ByteStream.SocketOptions) -> Void] = [
                { $0.keepAlive = .init(idle: .zero) }, { $0.keepAlive = .init(interval: .seconds(-1)) }, { $0.keepAlive = .init(count: 0) },
                { $0.keepAlive = .init(idle: .seconds(Int64.max)) }, { $0.sendBufferSize = 0 }, { $0.receiveBufferSize = -5 },
                { $0.unacknowledgedTimeout = .zero },
            ]
            for change in wrong {
                let (ours, theirs) = tcpPair()
                defer { close(theirs) }
                let error = #expect(throws: RunLoop.SourceError.self) {
                    _ = try ByteStream(adopting: ours, on: loop, options: options(change))
                }
                #expect(invalid(error), "\(String(describing: error))")
            }
        }
    }

    @Test func `on a Unix socket some are ignored, and a limit of unacknowledged bytes is refused`() throws {
        try inManualTime { loop, _, _ in
            let pair = SocketPair()
            let ignored = options { ($0.noDelay, $0.keepAlive, $0.sendBufferSize) = (false, .init(), 10_000) }
            let stream = try ByteStream(adopting: pair.ours, on: loop, options: ignored)
            stream.close()
            let other = SocketPair()
            let error = #expect(throws: RunLoop.SourceError.self) {
                _ = try ByteStream(adopting: other.ours, on: loop, options: options { $0.unacknowledgedTimeout = .seconds(1) })
            }
            #expect(unsupported(error))
        }
    }

    @Test func `what is no socket has no options`() throws {
        try inManualTime { loop, _, _ in
            let (reader, writer) = openPipe()
            defer { close(reader) }
            let error = #expect(throws: RunLoop.SourceError.self) {
                _ = try ByteStream(adopting: writer, on: loop, options: options { $0.noDelay = false })
            }
            #expect(unsupported(error))
            let second = #expect(throws: RunLoop.SourceError.self) {
                _ = try ByteStream.pair(on: loop, options: options { $0.keepAlive = .init() })
            }
            #expect(unsupported(second))
        }
    }

    @Test func `the peer of a Unix socket is known until the end, and no other`() throws {
        try inManualTime { loop, _, _ in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            let peer = try #require(stream.peerCredentials)
            #expect(peer.processID == getpid() && peer.userID == geteuid() && peer.groupID == getegid())
            #expect(stream.withDescriptor { $0 } == pair.ours)
            stream.close()
            #expect(stream.peerCredentials == nil && stream.withDescriptor { $0 } == nil)
            let (ours, theirs) = tcpPair()
            defer { close(theirs) }
            let tcp = try ByteStream(adopting: ours, on: loop)
            #expect(tcp.peerCredentials == nil)
            tcp.close()
            let memory = try ByteStream.pair(on: loop)
            #expect(memory.first.withDescriptor { $0 } == nil && memory.first.peerCredentials == nil)
            memory.first.close()
            memory.second.close()
        }
    }

    @Test func `the descriptor stays open while the body has it`() throws {
        try inManualTime { loop, _, _ in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.withDescriptor { descriptor in
                stream.close()
                #expect(isOpen(descriptor))
            }
            // Not by its number, which another test may have by now.
            #expect(otherEndIsClosed(pair.peer))
        }
    }
}

private struct Failure: Error {}
