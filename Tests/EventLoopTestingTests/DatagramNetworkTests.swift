// Rules proved here:
// - Sockets of a network exchange datagrams as sockets of the kernel do: peers, order, limits, truncation, refusals, ends.
// - What is lost, late or doubled depends on the seed only.

import EventLoop
import EventLoopDatagrams
import EventLoopStreams
import EventLoopTestSupport
import EventLoopTesting
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private let server = RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: 53)

/// Records what a socket receives, and when.
private func record(_ socket: DatagramSocket, _ clock: RunLoop.ManualClock, _ trace: Trace) {
    socket.onReceive { _, datagram in trace.add("\(datagram.bytes)@\(clock.ms)") }
}

/// Passes until nothing more happens within a second.
private func settle(_ loop: RunLoop) { _ = loop.run(for: .seconds(1)) }

/// The errno of a call that is refused; nil if it succeeds.
private func refusal(_ body: () throws -> DatagramSocket) throws -> Int32? {
    do {
        _ = try body()
        return nil
    } catch RunLoop.SourceError.system(_, let errno) {
        return errno
    }
}

@Suite struct DatagramNetworkTests {
    @Test func `a bound socket answers each of its clients, in their order`() throws {
        try inManualTime { loop, clock, trace in
            let network = DatagramNetwork()
            let echo = try network.socket(boundTo: server, on: loop)
            echo.onReceive { socket, datagram in socket.send(datagram.bytes + [0], to: datagram.peer) }
            let clients = try (0..<2).map { _ in try network.socket(connectedTo: server, on: loop) }
            for client in clients { record(client, clock, trace) }
            for number: UInt8 in 1...100 { clients[Int(number) % 2].send([number]) }
            settle(loop)
            #expect(trace.list.count == 100 && Set(trace.list) == Set((1...100).map { "[\($0), 0]@0" }))
            let odd = trace.list.filter { Int($0.dropFirst().prefix { $0 != "," })! % 2 == 1 }
            #expect(odd == stride(from: 1, to: 100, by: 2).map { "[\($0), 0]@0" })
            #expect(echo.statistics.received == 100 && echo.statistics.sent == 100 && clients[0].statistics.received == 50)
            #expect(Set(clients.map(\.localAddress)).count == 2 && echo.localAddress == server)
        }
    }

    @Test func `tasks on two loops exchange datagrams`() async throws {
        let threads = try (0..<2).map { try RunLoopThread(name: "datagrams \($0)") }
        let network = DatagramNetwork()
        let echo = try network.socket(boundTo: .ipv6(host: "::", port: 0), on: threads[0].runLoop)
        guard case .ipv6("::", let port) = echo.localAddress else { preconditionFailure("a wildcard address is kept") }
        let answering = Task { for try await datagram in echo.datagrams { try await echo.write(datagram.bytes, to: datagram.peer) } }
        let client = try network.socket(connectedTo: .ipv6(host: "::1", port: port), on: threads[1].runLoop)
        var answers = client.datagrams.makeAsyncIterator()
        for number: UInt8 in 0..<100 {
            try await client.write([number])
            #expect(try await answers.next()?.bytes == [number])
        }
        echo.close()
        try await answering.value
        #expect(!echo.isOpen && client.isOpen)
        for thread in threads {
            thread.stop()
            await thread.join()
        }
        await #expect(throws: RunLoopEnded.self) { _ = try await answers.next() }
        #expect(try await answers.next() == nil)
    }

    @Test func `a socket that is made in place of one that ends keeps the address`() throws {
        try inManualTime { loop, clock, trace in
            let network = DatagramNetwork()
            let first = try network.socket(boundTo: server, on: loop)
            let second = Box<DatagramSocket?>(nil)
            first.onReceive { socket, _ in
                // The old one has not left the loop before this call returns.
                socket.close()
                second.value = try? network.socket(boundTo: server, on: loop)
            }
            let client = try network.socket(connectedTo: server, on: loop)
            client.send([1])
            settle(loop)
            record(try #require(second.value), clock, trace)
            client.send([2])
            settle(loop)
            #expect(trace.list.map { $0.prefix { $0 != "@" } } == ["[2]"])
            #expect(try refusal { try network.socket(boundTo: server, on: loop) } == EADDRINUSE)
        }
    }

    /// What arrives of 200 datagrams.
    private func arrivals(seed: UInt64, _ set: @escaping @Sendable (DatagramNetwork) -> Void) throws -> [String] {
        try inManualTime { loop, clock, trace in
            let network = DatagramNetwork(seed: seed)
            set(network)
            let receiver = try network.socket(boundTo: server, on: loop)
            record(receiver, clock, trace)
            let sender = try network.socket(connectedTo: server, on: loop)
            for number: UInt8 in 0..<200 { sender.send([number]) }
            #expect(sender.statistics.sent == 200)
            settle(loop)
            #expect(receiver.statistics.received == UInt64(trace.list.count) && receiver.statistics.receiveDrops == 0)
            return trace.list
        }
    }

    @Test func `losses, duplicates and latencies are those of the seed`() throws {
        let lossy: @Sendable (DatagramNetwork) -> Void = { $0.lossChance = 0.25 }
        let lost = try arrivals(seed: 1, lossy)
        #expect(lost.count > 120 && lost.count < 180)
        #expect(try arrivals(seed: 1, lossy) == lost)
        #expect(try arrivals(seed: 2, lossy) != lost)
        let doubled = try arrivals(seed: 1) { $0.duplicateChance = 0.25 }
        #expect(doubled.count > 220 && doubled.count < 280 && Set(doubled).count == 200)
        let late: @Sendable (DatagramNetwork) -> Void = { $0.latency = .milliseconds(10)...(.milliseconds(20)) }
        let arrived = try arrivals(seed: 1, late)
        let times = arrived.compactMap { Int64($0.split(separator: "@")[1]) }
        #expect(arrived.count == 200 && times == times.sorted() && times.first! >= 10 && times.last! <= 20)
        #expect(arrived.map { $0.prefix { $0 != "@" } } != (0..<200).map { "[\($0)]" }, "they overtake each other")
        #expect(try arrivals(seed: 1, late) == arrived)
        #expect(try arrivals(seed: 1) { $0.lossChance = 1 }.isEmpty)
    }

    @Test func `a socket that nobody runs drops and counts what exceeds its buffer, and keeps the beginning`() throws {
        try inManualTime { loop, clock, trace in
            let network = DatagramNetwork()
            var options = DatagramSocket.Options()
            (options.receiveBufferSize, options.maximumSize) = (10_000, 100)
            let receiver = try network.socket(boundTo: server, on: loop, options: options)
            let sender = try network.socket(connectedTo: server, on: loop)
            for number: UInt8 in 0..<20 { sender.send([UInt8](repeating: number, count: 232)) }
            let lengths = Recorded()
            receiver.onReceive { _, datagram in lengths.add(datagram) }
            settle(loop)
            #expect(lengths.list.map(\.bytes) == (0..<10).map { [UInt8](repeating: $0, count: 100) })
            #expect(lengths.list.allSatisfy { $0.isTruncated })
            #expect(receiver.statistics.receiveDrops == 10 && receiver.statistics.received == 10)
            sender.send([1])
            settle(loop)
            #expect(lengths.list.last == Datagram(bytes: [1], peer: sender.localAddress))
            sender.send([UInt8](repeating: 0, count: 65_508))
            #expect(sender.statistics.sendDrops == 1)
        }
    }

    @Test func `a connected socket hears that nobody has the address, once, and goes on`() async throws {
        let thread = try RunLoopThread(name: "datagrams")
        let network = DatagramNetwork()
        let client = try network.socket(connectedTo: server, on: thread.runLoop)
        try await client.write([1])
        await #expect(throws: RunLoop.SourceError.self) {
            while true { try await client.write([2]) }  // ends: the first one was refused
        }
        let bound = try network.socket(boundTo: .ipv4(host: "127.0.0.1", port: 0), on: thread.runLoop)
        for _ in 0..<3 { try await bound.write([1], to: server) }
        let receiver = try network.socket(boundTo: server, on: thread.runLoop)
        var datagrams = receiver.datagrams.makeAsyncIterator()
        // Each refusal takes the place of one write.
        while (try? await client.write([3])) == nil {}
        #expect(try await datagrams.next()?.bytes == [3])
        thread.stop()
        await thread.join()
    }

    @Test func `a connected socket hears its peer only`() throws {
        try inManualTime { loop, clock, trace in
            let network = DatagramNetwork()
            let peer = try network.socket(boundTo: server, on: loop)
            let client = try network.socket(connectedTo: server, on: loop)
            record(client, clock, trace)
            let other = try network.socket(boundTo: .ipv4(host: "0.0.0.0", port: 0), on: loop)
            #expect(other.send([1], to: client.localAddress) && peer.send([2], to: client.localAddress))
            #expect(!client.send([3], to: other.localAddress))
            settle(loop)
            #expect(trace.list == ["[2]@0"])
        }
    }

    @Test func `an address belongs to one socket until that ends`() throws {
        try inManualTime { loop, _, _ in
            let network = DatagramNetwork()
            let first = try network.socket(boundTo: server, on: loop)
            #expect(try refusal { try network.socket(boundTo: .ipv4(host: "0.0.0.0", port: 53), on: loop) } == EADDRINUSE)
            #expect(try refusal { try DatagramNetwork().socket(boundTo: server, on: loop) } == nil)
            #expect(try refusal { try network.socket(boundTo: .unix(path: "/tmp/none"), on: loop) } == EAFNOSUPPORT)
            let six = RunLoop.SocketAddress.ipv6(host: "::1", port: 53)
            #expect(try refusal { try network.socket(connectedTo: six, from: server, on: loop) } == EAFNOSUPPORT)
            #expect(throws: RunLoop.SourceError.self) { try network.socket(boundTo: .ipv4(host: "nowhere", port: 1), on: loop) }
            #expect(first.withDescriptor { $0 } == nil)
            #expect(throws: RunLoop.SourceError.self) { try first.join(.ipv4(host: "224.0.0.251", port: 0)) }
            first.close()
            #expect(try refusal { try network.socket(boundTo: server, on: loop) } == nil)
            // The socket above is released.
            #expect(try refusal { try network.socket(boundTo: server, on: loop) } == nil)
            settle(loop)
            #expect(loop.run(for: .zero) == .finished, "no source is left")
        }
    }

    /// In a process of its own, which is killed if a lock stays held.
    @Test func `what ends while a late datagram is sent may use the socket`() async {
        await #expect(processExitsWith: .success) {
            killLater(seconds: 300)
            try onFreshThread { loop in
                let network = DatagramNetwork()
                network.latency = .milliseconds(1)...(.milliseconds(1))
                let receiver = try network.socket(boundTo: server, on: loop)
                let sender = try network.socket(connectedTo: server, on: loop)
                let (pipe, trace) = (Pipe(), Trace())
                let first = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
                loop.add(first)
                // From now on the loop watches what joins the mode at once.
                _ = loop.run(for: .zero)
                let number = fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, 800)
                let bad = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in }
                bad.onInvalidation { trace.add("ended when \(sender.statistics.sent) was sent") }
                try plainThread { loop.add(bad) }.join()
                close(number)
                // Adds a timer on the loop's thread, which first carries out what the other thread has added.
                let isSent = sender.send([1])
                #expect(isSent && trace.list == ["ended when 1 was sent"])
                first.invalidate()
                for socket in [receiver, sender] { socket.close() }
            }
        }
    }

    @Test func `while a handler runs its loop, the other datagrams wait, and what it sends goes out`() throws {
        try inManualTime { loop, clock, trace in
            let network = DatagramNetwork()
            let peer = try network.socket(boundTo: .ipv4(host: "127.0.0.1", port: 1), on: loop)
            record(peer, clock, trace)
            let socket = try network.socket(boundTo: server, on: loop)
            socket.onReceive { socket, datagram in
                trace.add("begin \(datagram.bytes)")
                socket.send([9], to: datagram.peer)
                _ = loop.run(for: .milliseconds(1))
                trace.add("end \(datagram.bytes)")
            }
            peer.send([1], to: server)
            peer.send([2], to: server)
            settle(loop)
            #expect(trace.list == ["begin [1]", "[9]@0", "end [1]", "begin [2]", "[9]@1", "end [2]"])
        }
    }
}

/// What arrived.
private final class Recorded: @unchecked Sendable {
    // SAFETY: the loop's thread.
    private(set) var list: [Datagram] = []
    func add(_ datagram: Datagram) { list.append(datagram) }
}
