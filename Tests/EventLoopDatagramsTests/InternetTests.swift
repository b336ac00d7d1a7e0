// IPv6 beside IPv4, multicast, broadcast, shared ports.

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

#if os(Linux)
private let loopback = "lo"
#else
private let loopback = "lo0"
#endif
private let group = "239.255.27.27"

/// Containers without a loopback interface for multicast refuse it.
private func canUseMulticast() -> Bool {
    guard let thread = try? RunLoopThread(name: "probe") else { return false }
    defer { thread.stop() }
    var options = DatagramSocket.Options()
    options.multicastInterface = loopback
    guard let socket = try? DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: 0), on: thread.runLoop, mode: .never, options: options),
        (try? socket.join(.ipv4(host: group, port: 0), interface: loopback)) != nil
    else { return false }
    socket.send([1], to: .ipv4(host: group, port: socket.localAddress.port))
    return socket.takeFromKernel() != nil
}

@Suite(.bounded, .tags(.memory)) struct InternetTests {
    @Test func `an IPv6 socket on every address hears IPv4, too`() async throws {
        try await withSockets { loop, _ in
            let both = try DatagramSocket(boundTo: .ipv6(host: "::", port: 0), on: loop)
            let port = both.localAddress.port
            let old = try DatagramSocket(connectedTo: .ipv4(host: "127.0.0.1", port: port), from: .anyIPv4, on: loop)
            let new = try DatagramSocket(connectedTo: .ipv6(host: "::1", port: port), on: loop)
            var datagrams = both.datagrams.makeAsyncIterator()
            try await old.write([4])
            let first = try #require(try await datagrams.next())
            #expect(first == Datagram(bytes: [4], peer: .ipv6(host: "::ffff:127.0.0.1", port: old.localAddress.port)))
            try await new.write([6])
            #expect(try await datagrams.next() == Datagram(bytes: [6], peer: new.localAddress))
            #expect(both.send([44], to: first.peer))
            var answers = old.datagrams.makeAsyncIterator()
            #expect(try await answers.next()?.bytes == [44])
        }
    }

    @Test func `with ipv6Only, the port stays free for IPv4`() async throws {
        try await withSockets { loop, _ in
            let both = try DatagramSocket(boundTo: .ipv6(host: "::", port: 0), on: loop)
            #expect(throws: RunLoop.SourceError.self) {
                try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: both.localAddress.port), on: loop)
            }
            var options = DatagramSocket.Options()
            options.ipv6Only = true
            // The port that the kernel chooses may be in use for IPv4 by another program.
            try await suspendUntil("a port is free for both") {
                let new = try DatagramSocket(boundTo: .ipv6(host: "::", port: 0), on: loop, options: options)
                return (try? DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: new.localAddress.port), on: loop)) != nil
            }
        }
    }

    @Test(.enabled(if: canUseMulticast(), "the kernel refuses multicast on the loopback interface"))
    func `the members of a group that share a port hear its datagrams until they leave`() async throws {
        try await withSockets { loop, _ in
            var options = DatagramSocket.Options()
            (options.sharesPort, options.multicastInterface) = (true, loopback)
            let first = try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: 0), on: loop, options: options)
            let port = first.localAddress.port
            let second = try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: port), on: loop, mode: .never, options: options)
            let group = RunLoop.SocketAddress.ipv4(host: group, port: port)
            for socket in [first, second] { try socket.join(group, interface: loopback) }
            let sender = try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: 0), on: loop, options: options)
            try await sender.write([1], to: group)
            var datagrams = first.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [1])
            try await suspendUntil("the second member has it, too") { second.takeFromKernel() == [1] }
            try second.leave(group, interface: loopback)
            try await sender.write([2], to: group)
            #expect(try await datagrams.next()?.bytes == [2])
            #expect(try await refusal { try first.join(group, interface: loopback) } == EADDRINUSE)
            #expect(try await refusal { try second.leave(group, interface: loopback) } == EADDRNOTAVAIL)
        }
    }

    @Test(.enabled(if: canUseMulticast(), "the kernel refuses multicast on the loopback interface"))
    func `without multicastLoops, this machine does not hear what it sends to a group`() async throws {
        try await withSockets { loop, _ in
            var options = DatagramSocket.Options()
            options.multicastInterface = loopback
            let receiver = try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: 0), on: loop, options: options)
            let group = RunLoop.SocketAddress.ipv4(host: group, port: receiver.localAddress.port)
            try receiver.join(group, interface: loopback)
            let heard = try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: 0), on: loop, options: options)
            (options.multicastLoops, options.multicastHops) = (false, 3)
            let silent = try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: 0), on: loop, options: options)
            for (option, expected) in [(IP_MULTICAST_LOOP, Int32(0)), (IP_MULTICAST_TTL, 3)] {
                let value = silent.withDescriptor { descriptor in
                    var (value, size) = (Int32(-1), socklen_t(MemoryLayout<Int32>.size))
                    getsockopt(descriptor, Int32(IPPROTO_IP), Int32(option), &value, &size)
                    return value
                }
                #expect(value == expected)
            }
            try await heard.write([2], to: group)
            var datagrams = receiver.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [2])
        }
    }

    @Test func `a group that cannot be one, and an interface that does not exist, are refused`() async throws {
        try await withSockets { loop, directory in
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            #expect(throws: RunLoop.SourceError.self) { try socket.join(.ipv4(host: "127.0.0.1", port: 0), interface: loopback) }
            #expect(try await refusal { try socket.join(.ipv6(host: "ff02::1", port: 0)) } == EAFNOSUPPORT)
            #expect(throws: RunLoop.SourceError.self) { try socket.join(.ipv4(host: group, port: 0), interface: "none-such") }
            let local = try DatagramSocket(boundTo: .unix(path: directory + "/a"), on: loop)
            #expect(try await refusal { try local.join(.unix(path: "/b")) } == EAFNOSUPPORT)
            var options = DatagramSocket.Options()
            options.multicastInterface = "none-such"
            #expect(throws: RunLoop.SourceError.self) { try DatagramSocket(boundTo: .anyIPv4, on: loop, options: options) }
            options.multicastInterface = nil
            options.multicastHops = 256
            #expect(throws: RunLoop.SourceError.self) { try DatagramSocket(boundTo: .anyIPv4, on: loop, options: options) }
        }
    }

    #if os(Linux)
    @Test func `only a socket with allowsBroadcast sends to a broadcast address`() async throws {
        try await withSockets { loop, _ in
            let receiver = try DatagramSocket(boundTo: .ipv4(host: "0.0.0.0", port: 0), on: loop)
            let everybody = RunLoop.SocketAddress.ipv4(host: "127.255.255.255", port: receiver.localAddress.port)
            let without = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            #expect(try await refusal { try await without.write([1], to: everybody) } == EACCES)
            var options = DatagramSocket.Options()
            options.allowsBroadcast = true
            let with = try DatagramSocket(boundTo: .anyIPv4, on: loop, options: options)
            try await with.write([2], to: everybody)
            var datagrams = receiver.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [2])
        }
    }
    #endif
}
