// What the tests of datagram sockets share.

import EventLoop
import EventLoopDatagrams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RunLoop.Mode {
    /// No loop runs it: what is sent to a socket in it stays in the kernel.
    static let never = RunLoop.Mode("datagrams.never")
}

extension RunLoop.SocketAddress {
    static let anyIPv4 = Self.ipv4(host: "127.0.0.1", port: 0)

    var port: UInt16 {
        switch self {
        case .ipv4(_, let port), .ipv6(_, let port): port
        case .unix: 0
        }
    }
}

enum Family: String, CaseIterable, Sendable {
    case ipv4, ipv6, unix

    func address(_ name: String, in directory: String) -> RunLoop.SocketAddress {
        switch self {
        case .ipv4: .anyIPv4
        case .ipv6: .ipv6(host: "::1", port: 0)
        case .unix: .unix(path: "\(directory)/\(name)")
        }
    }
}

extension DatagramSocket {
    /// Takes a datagram from the kernel, past the library; nil if none is there.
    func takeFromKernel() -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = withDescriptor { recv($0, &buffer, buffer.count, Int32(MSG_DONTWAIT)) }
        guard let count, count >= 0 else { return nil }
        return Array(buffer[..<count])
    }

    #if os(Linux)
    /// A socket that no loop reads, and for which the kernel has dropped some of 1,000 datagrams.
    static func overrun(on loop: RunLoop) async throws -> DatagramSocket {
        var options = DatagramSocket.Options()
        options.receiveBufferSize = 4_096
        let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop, mode: .never, options: options)
        let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop)
        for _ in 0..<1_000 { try await sender.write([1, 2, 3]) }
        // On a busy machine, datagrams are on their way for a while.
        try await suspendUntil("the kernel drops some") { receiver.statistics.receiveDrops > 0 }
        return receiver
    }

    /// Makes the kernel report to a bound socket, too, what it learns of peers.
    func hearErrors() {
        // ip(7): IP_RECVERR is 11.
        var one: Int32 = 1
        _ = withDescriptor { setsockopt($0, Int32(IPPROTO_IP), 11, &one, 4) }
    }

    /// Connects it to itself: so no other socket gets its port, and the kernel refuses what others send to it.
    func refuseOthers() {
        _ = withDescriptor { descriptor in
            var address = sockaddr_storage()
            var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
            withUnsafeMutablePointer(to: &address) { address in
                address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                    precondition(getsockname(descriptor, address, &length) == 0 && connect(descriptor, address, length) == 0)
                }
            }
        }
    }

    /// Whether the kernel has something to report. It stays there.
    var hasError: Bool {
        withDescriptor { descriptor in
            var entry = pollfd(fd: descriptor, events: 0, revents: 0)
            return poll(&entry, 1, 0) == 1 && entry.revents & Int16(POLLERR) != 0
        } ?? false
    }
    #endif

    /// Sends until the kernel and the queue take no more; returns how many were queued or sent.
    func sendUntilRefused(to peer: RunLoop.SocketAddress? = nil) -> Int {
        var count = 0
        while send([UInt8(truncatingIfNeeded: count)], to: peer) { count += 1 }  // ends: the kernel's queue is finite
        return count
    }
}

/// Calls `body` with the loop of a thread, and a directory, which end afterwards.
func withSockets(
    isolation: isolated (any Actor)? = #isolation, _ body: (RunLoop, String) async throws -> Void
) async throws {
    let directory = makeTemporaryDirectory()
    defer { removeFlatDirectory(directory) }
    let thread = try RunLoopThread(name: "datagrams")
    do {
        try await body(thread.runLoop, directory)
    } catch {
        thread.stop()
        await thread.join()
        throw error
    }
    thread.stop()
    await thread.join()
}

/// The errno of a call that the kernel refuses; nil if it succeeds.
func refusal(isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Void) async throws -> Int32? {
    do {
        try await body()
        return nil
    } catch RunLoop.SourceError.system(_, let errno) {
        return errno
    }
}
