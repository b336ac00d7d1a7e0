// What is sent: limits, refusals, connected peers.

import EventLoop
import EventLoopDatagrams
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// A length and a send buffer for which the kernel refuses a datagram over the loopback interface: longer than any of UDP, and with two fragments,
/// which need more than the buffer.
private let refused: [(Family, Int, Int?)] = [(.ipv4, 70_000, nil), (.ipv6, 65_507, 1)]

@Suite(.bounded, .tags(.memory)) struct SendingTests {
    @Test(arguments: Family.allCases)
    func `a socket sends without its mode running`(family: Family) async throws {
        try await withSockets { loop, directory in
            let receiver = try DatagramSocket(boundTo: family.address("receiver", in: directory), on: loop)
            let sender = try DatagramSocket(boundTo: family.address("sender", in: directory), on: loop, mode: .never)
            var datagrams = receiver.datagrams.makeAsyncIterator()
            #expect(sender.send([1], to: receiver.localAddress))
            #expect(try await datagrams.next()?.bytes == [1])
            try await sender.write([2], to: receiver.localAddress)
            #expect(try await datagrams.next()?.bytes == [2])
        }
    }

    @Test(arguments: [true, false])
    func `send beyond sendLimit returns false and is counted, and goes on when there is room`(isConnected: Bool) async throws {
        try await withSockets { loop, directory in
            let receiver = try DatagramSocket(boundTo: .unix(path: directory + "/receiver"), on: loop, mode: .never)
            var options = DatagramSocket.Options()
            options.sendLimit = 4
            let peer = isConnected ? nil : receiver.localAddress
            let sender =
                isConnected
                ? try DatagramSocket(connectedTo: receiver.localAddress, on: loop, options: options)
                : try DatagramSocket(boundTo: .unix(path: directory + "/sender"), on: loop, options: options)
            let count = sender.sendUntilRefused(to: peer)
            #expect(count > 4 && sender.statistics.sendDrops == 1 && sender.statistics.sent == UInt64(count - 4))
            var bytes: [UInt8] = []
            try await suspendUntil("all have arrived") {
                while let datagram = receiver.takeFromKernel() { bytes += datagram }
                return bytes.count >= count
            }
            #expect(bytes == (0..<count).map { UInt8(truncatingIfNeeded: $0) })
            #expect(sender.statistics.sent == UInt64(count) && sender.statistics.sendDrops == 1)
            #expect(sender.send([1], to: peer))
        }
    }

    @Test func `one Unix peer that takes nothing does not stop datagrams for another`() async throws {
        try await withSockets { loop, directory in
            let full = try DatagramSocket(boundTo: .unix(path: directory + "/full"), on: loop, mode: .never)
            let other = try DatagramSocket(boundTo: .unix(path: directory + "/other"), on: loop)
            let sender = try DatagramSocket(boundTo: .unix(path: directory + "/sender"), on: loop)
            var count: UInt64 = 0
            while sender.statistics.sent == count {  // ends: the kernel's queue is finite, and then one is queued
                sender.send([1], to: full.localAddress)
                count += 1
            }
            #expect(sender.send([2], to: other.localAddress))
            var datagrams = other.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [2])
        }
    }

    @Test func `write waits for room, and a cancelled write has sent nothing`() async throws {
        try await withSockets { loop, directory in
            let receiver = try DatagramSocket(boundTo: .unix(path: directory + "/receiver"), on: loop, mode: .never)
            var options = DatagramSocket.Options()
            options.sendLimit = 1
            let sender = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, options: options)
            let count = sender.sendUntilRefused()
            let (cancelled, waiting) = (Task { try await sender.write([100]) }, Task { try await sender.write([101]) })
            cancelled.cancel()
            await #expect(throws: CancellationError.self) { try await cancelled.value }
            var bytes: [UInt8] = []
            try await suspendUntil("all have arrived") {
                while let datagram = receiver.takeFromKernel() { bytes += datagram }
                return bytes.count >= count + 1
            }
            try await waiting.value
            #expect(bytes == (0..<count).map { UInt8(truncatingIfNeeded: $0) } + [101])
        }
    }

    /// The kernel has room again between the wait, which reports only a datagram to read, and the call of the socket.
    @Test func `a write that waits goes on while the handler runs its loop`() async throws {
        try await withSockets { loop, directory in
            let peer = try DatagramSocket(boundTo: .unix(path: directory + "/peer"), on: loop, mode: .never)
            var options = DatagramSocket.Options()
            options.sendLimit = 1
            let socket = try DatagramSocket(
                connectedTo: peer.localAddress, from: .unix(path: directory + "/socket"), on: loop, options: options)
            _ = socket.sendUntilRefused()
            let (isWritten, wasWrittenInside) = (Box(false), Box<Bool?>(nil))
            socket.onReceive { socket, datagram in
                guard datagram.bytes == [0] else { return }
                Task(executorPreference: loop) {
                    try await socket.write([9])
                    isWritten.value = true
                }
                let observer = RunLoop.Observer(activities: [.beforeWaiting, .afterWaiting]) { observer, activity in
                    if activity == .beforeWaiting {
                        peer.send([1], to: socket.localAddress)
                        return
                    }
                    while peer.takeFromKernel() != nil {}  // ends: the kernel's queue is finite
                    observer.invalidate()
                }
                loop.add(observer)
                try? waitUntil("the write goes on") {
                    _ = loop.run(mode: .default, for: .milliseconds(10))
                    return isWritten.value
                }
                wasWrittenInside.value = isWritten.value
            }
            peer.send([0], to: socket.localAddress)
            try await suspendUntil("the handler returns") { wasWrittenInside.value != nil }
            #expect(wasWrittenInside.value == true)
            var last: [UInt8]?
            while let datagram = peer.takeFromKernel() { last = datagram }
            #expect(last == [9])
        }
    }

    @Test(arguments: refused)
    func `a datagram that the kernel refuses for good is counted, and a write of it throws EMSGSIZE`(
        family: Family, count: Int, buffer: Int?
    ) async throws {
        try await withSockets { loop, directory in
            var options = DatagramSocket.Options()
            options.sendBufferSize = buffer
            let receiver = try DatagramSocket(boundTo: family.address("receiver", in: directory), on: loop)
            let long = [UInt8](repeating: 1, count: count)
            let bound = try DatagramSocket(boundTo: family.address("bound", in: directory), on: loop, options: options)
            let connected = try DatagramSocket(connectedTo: receiver.localAddress, on: loop, options: options)
            for (sender, peer) in [(bound, receiver.localAddress), (connected, nil)] {
                let isQueued = sender.send(long, to: peer)
                #expect(isQueued)  // without the long value in the message
                #expect(sender.statistics.sendDrops == 1 && sender.statistics.sent == 0)
                let errno = try await refusal { try await sender.write(long, to: peer) }
                #expect(errno == EMSGSIZE)
                #expect(sender.statistics.sendDrops == 2 && sender.statistics.sent == 0)
                try await sender.write([7], to: peer)
                #expect(sender.statistics.sent == 1)
            }
        }
    }

    @Test(arguments: [RunLoop.Mode.common, .never], Family.allCases)
    func `the next write hears that nobody has the address, and the socket goes on`(mode: RunLoop.Mode, family: Family) async throws {
        try await withSockets { loop, directory in
            let first = try DatagramSocket(boundTo: family.address("receiver", in: directory), on: loop)
            let address = first.localAddress
            let sender = try DatagramSocket(connectedTo: address, on: loop, mode: mode)
            // There it is closed when the call returns.
            try await loop.performAsync { first.close() }
            try await suspendUntil("the write fails") {
                let errno = try await refusal { try await sender.write([1]) }
                #expect(errno == nil || errno == ECONNREFUSED)
                return errno != nil
            }
            #expect(sender.isOpen && sender.statistics.sendDrops == 0)
            let second = try DatagramSocket(boundTo: address, on: loop)
            var datagrams = second.datagrams.makeAsyncIterator()
            try await sender.write([2])
            #expect(try await datagrams.next()?.bytes == [2])
            sender.send([3])
            #expect(try await datagrams.next()?.bytes == [3])
        }
    }

    #if os(Linux)
    @Test(arguments: [false, true])
    func `what the kernel reports of one peer costs a bound socket no datagram to another`(writes: Bool) async throws {
        try await withSockets { loop, _ in
            let gone = try DatagramSocket(boundTo: .anyIPv4, on: loop, mode: .never)
            let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop, mode: .never)
            gone.refuseOthers()
            let sender = try DatagramSocket(boundTo: .anyIPv4, on: loop, mode: .never)
            sender.hearErrors()
            #expect(sender.send([1], to: gone.localAddress))
            try await suspendUntil("the kernel has an error") { sender.hasError }
            if writes {
                try await sender.write([2], to: receiver.localAddress)
            } else {
                #expect(sender.send([2], to: receiver.localAddress))
            }
            #expect(sender.statistics.sent == 2 && sender.statistics.sendDrops == 0)
            try await suspendUntil("it arrives") { receiver.takeFromKernel() == [2] }
        }
    }

    @Test func `what the kernel reports of one peer costs a bound socket nothing of what a handler has sent`() async throws {
        try await withSockets { loop, _ in
            let gone = try DatagramSocket(boundTo: .anyIPv4, on: loop, mode: .never)
            let receiver = try DatagramSocket(boundTo: .anyIPv4, on: loop, mode: .never)
            gone.refuseOthers()
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let client = try DatagramSocket(connectedTo: socket.localAddress, on: loop, mode: .never)
            socket.hearErrors()
            let hadError = Box(false)
            socket.onReceive { socket, datagram in
                guard datagram.bytes == [0] else { return }
                // What another thread sends goes out at once, and what this one sends with the next datagrams.
                _ = try? plainThread { socket.send([1], to: gone.localAddress) }.join()
                try? waitUntil("the kernel has an error") { socket.hasError }
                hadError.value = socket.hasError
                for number: UInt8 in 2...3 { socket.send([number], to: receiver.localAddress) }
            }
            // The loop is busy while they arrive, so that they are one batch.
            loop.perform { for number: UInt8 in 0..<2 { client.send([number]) } }
            try await suspendUntil("all are sent or dropped") { socket.statistics.sent + socket.statistics.sendDrops == 3 }
            #expect(hadError.value && socket.statistics.sendDrops == 0)
            try await suspendUntil("the first arrives") { receiver.takeFromKernel() == [2] }
            try await suspendUntil("the second arrives") { receiver.takeFromKernel() == [3] }
        }
    }

    @Test func `a peer that is gone costs a connected socket nothing of a batch, and the next write hears of it`() async throws {
        try await withSockets { loop, _ in
            let server = try DatagramSocket(boundTo: .anyIPv4, on: loop, mode: .never)
            let socket = try DatagramSocket(connectedTo: server.localAddress, on: loop)
            socket.onReceive { socket, datagram in
                guard datagram.bytes == [0] else { return }
                // On the loop's thread it is closed when the call returns.
                server.close()
                // Each is longer than the one before, and so a message of its own.
                for count in 1...4 { socket.send([UInt8](repeating: 1, count: count)) }
            }
            // The loop is busy while they arrive, so that they are one batch, and so are the answers.
            loop.perform { for number: UInt8 in 0..<2 { server.send([number], to: socket.localAddress) } }
            try await suspendUntil("all are sent or dropped") { socket.statistics.sent + socket.statistics.sendDrops == 4 }
            #expect(socket.statistics.sendDrops == 0)
            try await suspendUntil("the write fails") { try await refusal { try await socket.write([5]) } == ECONNREFUSED }
            #expect(socket.isOpen && socket.statistics.sendDrops == 0)
        }
    }
    #endif

    @Test func `names of Unix sockets that differ only in how a letter is composed are two`() async throws {
        try await withSockets { loop, directory in
            let paths = ["\(directory)/\u{e9}", "\(directory)/e\u{301}"]
            #expect(RunLoop.SocketAddress.unix(path: paths[0]) != .unix(path: paths[1]))
            let receivers = try paths.map { try DatagramSocket(boundTo: .unix(path: $0), on: loop, mode: .never) }
            let sender = try DatagramSocket(boundTo: .unix(path: directory + "/sender"), on: loop)
            for (number, path) in paths.enumerated() { try await sender.write([UInt8(number)], to: .unix(path: path)) }
            #expect(receivers.map { $0.takeFromKernel() } == [[0], [1]])
            let connected = try DatagramSocket(connectedTo: .unix(path: paths[0]), on: loop)
            #expect(try await refusal { try await connected.write([1], to: .unix(path: paths[1])) } == EISCONN)
        }
    }

    @Test func `a connected socket knows its peer by each spelling of its address`() async throws {
        try await withSockets { loop, _ in
            let peer = try DatagramSocket(boundTo: .ipv6(host: "::1", port: 0), on: loop)
            let port = peer.localAddress.port
            let sender = try DatagramSocket(connectedTo: .ipv6(host: "0:0:0:0:0:0:0:1", port: port), on: loop)
            try await sender.write([1], to: peer.localAddress)
            #expect(sender.send([2], to: .ipv6(host: "0::1", port: port)))
            #expect(try await refusal { try await sender.write([3], to: .ipv6(host: "::1", port: port ^ 1)) } == EISCONN)
            #expect(try await refusal { try await sender.write([3], to: .ipv4(host: "127.0.0.1", port: port)) } == EISCONN)
            var datagrams = peer.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [1])
            #expect(try await datagrams.next()?.bytes == [2])
        }
    }

    @Test func `a connected socket sends to no other peer`() async throws {
        try await withSockets { loop, _ in
            let (peer, other) = (try DatagramSocket(boundTo: .anyIPv4, on: loop), try DatagramSocket(boundTo: .anyIPv4, on: loop))
            let sender = try DatagramSocket(connectedTo: peer.localAddress, on: loop)
            #expect(!sender.send([1], to: other.localAddress))
            #expect(sender.statistics.sendDrops == 1)
            #expect(try await refusal { try await sender.write([1], to: other.localAddress) } == EISCONN)
            #expect(sender.send([2], to: peer.localAddress))
            var datagrams = peer.datagrams.makeAsyncIterator()
            #expect(try await datagrams.next()?.bytes == [2])
            #expect(other.statistics.received == 0)
        }
    }

    @Test func `an address that cannot be used is refused`() async throws {
        try await withSockets { loop, directory in
            let socket = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            #expect(!socket.send([1]))
            #expect(!socket.send([1], to: .ipv6(host: "::1", port: 9)))
            #expect(!socket.send([1], to: .ipv4(host: "localhost", port: 9)))
            #expect(!socket.send([1], to: .ipv4(host: "127.0.0.1\0x", port: 9)))
            #expect(socket.statistics.sendDrops == 4)
            #expect(try await refusal { try await socket.write([1]) } == EDESTADDRREQ)
            #expect(try await refusal { try await socket.write([1], to: .unix(path: "/x")) } == EAFNOSUPPORT)
            await #expect(throws: RunLoop.SourceError.self) { try await socket.write([1], to: .ipv4(host: "1.2.3", port: 9)) }
            for path in ["", String(repeating: "x", count: 200), "a\0b"] {
                #expect(throws: RunLoop.SourceError.self) { try DatagramSocket(boundTo: .unix(path: path), on: loop) }
            }
            #expect(throws: RunLoop.SourceError.self) {
                try DatagramSocket(connectedTo: .unix(path: directory + "/a"), from: .anyIPv4, on: loop)
            }
            #expect(throws: RunLoop.SourceError.self) { try DatagramSocket(boundTo: socket.localAddress, on: loop) }
        }
    }

    /// Answers a batch of questions with datagrams of these sizes, and returns the lengths of what the kernel has for the peer.
    private func answerLengths(
        _ sizes: [Int], prepare: (_ peer: DatagramSocket, _ server: DatagramSocket) -> Void
    ) async throws -> [Int] {
        let lengths = Trace()
        try await withSockets { loop, _ in
            let server = try DatagramSocket(boundTo: .anyIPv4, on: loop)
            let peer = try DatagramSocket(connectedTo: server.localAddress, on: loop, mode: .never)
            prepare(peer, server)
            server.onReceive { server, question in server.send(question.bytes, to: question.peer) }
            // The loop is busy while they arrive, so that they are one batch.
            loop.perform { for size in sizes { peer.send([UInt8](repeating: 1, count: size)) } }
            try await suspendUntil("all are answered") { server.statistics.sent == UInt64(sizes.count) }
            // On a busy machine, they are on their way for a while. The last one is not empty.
            try await suspendUntil("all have arrived") {
                while let bytes = peer.takeFromKernel() { lengths.add("\(bytes.count)") }
                return lengths.list.compactMap { Int($0) }.reduce(0, +) >= sizes.reduce(0, +)
            }
            #expect(server.statistics.sendDrops == 0)
        }
        return lengths.list.compactMap { Int($0) }
    }

    @Test func `answers of a batch arrive as they were sent, whatever their sizes`() async throws {
        let sizes = [64, 64, 64, 0, 64, 63, 64, 65, 65, 1, 1, 0, 0, 1_400, 1_400, 1_400, 2] + (0..<40).map { $0 * 7 % 50 }
        #expect(try await answerLengths(sizes) { _, _ in } == sizes)
    }

    #if os(Linux)
    @Test func `answers of one size for one peer go through the kernel as one message`() async throws {
        // A receiver that asks for it gets the message whole (UDP_GRO).
        let lengths = try await answerLengths([Int](repeating: 64, count: 32)) { peer, _ in
            var one: Int32 = 1
            _ = peer.withDescriptor { setsockopt($0, Int32(IPPROTO_UDP), 104, &one, 4) }
        }
        #expect(lengths.reduce(0, +) == 32 * 64 && lengths.count < 32)
    }

    @Test func `where the kernel refuses such a message, its datagrams go out one by one`() async throws {
        // Without checksums there are no segments.
        let lengths = try await answerLengths([Int](repeating: 64, count: 32)) { _, server in
            var one: Int32 = 1
            _ = server.withDescriptor { setsockopt($0, SOL_SOCKET, SO_NO_CHECK, &one, 4) }
        }
        #expect(lengths == [Int](repeating: 64, count: 32))
    }
    #endif
}
