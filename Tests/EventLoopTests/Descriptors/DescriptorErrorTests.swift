// Errors and exceptional events (semantics 4.24, 4.25, 4.26):
//  - A message in the error queue of a socket does not keep the loop busy, whatever the trigger, and loses no data and no later error.
//  - `.error` is called with the error alone, until the handler has taken it.
//  - `.priority` is called for urgent data. (KernelFileTests has the files of the kernel.)
//  - Urgent data that is there already when a handler arms a source, or adds one, is for the next pass.

#if os(Linux)
import CLibevent
import EventLoop
import EventLoopTestSupport
import Glibc
import Testing

/// A UDP socket on the loopback interface with IP_RECVERR, connected to a port where nobody listens.
private final class UnansweredSocket: Sendable {
    let descriptor: Int32
    /// Has the peer's port, so that no other socket of the machine gets it. While it is connected to itself, it takes nothing from others, and the
    /// kernel refuses what they send, as if nobody had the port.
    private let peer: Int32

    init() {
        let reserved = socket(AF_INET, SocketKind.datagram | Int32(SOCK_CLOEXEC.rawValue), 0)
        let address = bindToLoopback(reserved)
        precondition(withSocketAddress(address) { connect(reserved, $0, $1) } == 0)
        peer = reserved
        descriptor = socket(AF_INET, SocketKind.datagram | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        _ = bindToLoopback(descriptor)
        // ip(7): IP_RECVERR is 11.
        var isOn: Int32 = 1
        precondition(setsockopt(descriptor, Int32(IPPROTO_IP), 11, &isOn, 4) == 0)
        precondition(withSocketAddress(address) { connect(descriptor, $0, $1) } == 0)
    }

    deinit {
        close(descriptor)
        close(peer)
    }

    /// Sends a datagram that is refused, and returns when the refusal is in the error queue.
    func sendInVain() {
        let before = bytesQueued
        while send(descriptor, "x", 1, 0) < 0 {}  // ends: the first failure takes the pending error
        do { try waitUntil("the refusal has come") { bytesQueued > before } } catch { preconditionFailure("\(error)") }
    }

    /// What waits in the receive queue and in the error queue (socket(7), SO_MEMINFO is 55; the first number is SK_MEMINFO_RMEM_ALLOC).
    private var bytesQueued: UInt32 {
        var counts = [UInt32](repeating: 0, count: 9)
        var length = socklen_t(36)
        precondition(getsockopt(descriptor, SOL_SOCKET, 55, &counts, &length) == 0, "SO_MEMINFO: errno \(errno)")
        return counts[0]
    }

    /// From now on, the peer takes what is sent to its port, and sends from there.
    func openPeer() { precondition(withSocketAddress(addressOf(descriptor)) { connect(peer, $0, $1) } == 0) }

    func closePeer() { precondition(withSocketAddress(addressOf(peer)) { connect(peer, $0, $1) } == 0) }

    func sendFromPeer(_ text: String) {
        precondition(send(peer, text, text.utf8.count, 0) == text.utf8.count)
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while Int32(entry.revents) & POLLIN == 0 { precondition(poll(&entry, 1, 60_000) == 1) }  // ends: the datagram arrives
    }

    /// One datagram, or the error that the kernel reports instead.
    func receive() -> String {
        var buffer = [UInt8](repeating: 0, count: 64)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        return count >= 0 ? String(decoding: buffer[..<count], as: UTF8.self) : errno == ECONNREFUSED ? "refused" : "nothing"
    }

    /// Whether there was a message in the error queue. It is taken.
    func takeError() -> Bool {
        var message = msghdr()
        return recvmsg(descriptor, &message, Int32(MSG_ERRQUEUE)) >= 0
    }
}

private func bindToLoopback(_ socket: Int32) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    precondition(withSocketAddress(address) { bind(socket, $0, $1) } == 0)
    return addressOf(socket)
}

private func addressOf(_ socket: Int32) -> sockaddr_in {
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    withUnsafeMutablePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { precondition(getsockname(socket, $0, &length) == 0) }
    }
    return address
}

private func withSocketAddress<R>(_ address: sockaddr_in, _ body: (UnsafePointer<sockaddr>, socklen_t) -> R) -> R {
    withUnsafePointer(to: address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
    }
}

@Suite(.tags(.memory)) struct `Descriptor errors and exceptional events` {
    typealias Events = RunLoop.DescriptorSource.Events

    private static func poll(_ loop: RunLoop, _ count: Int) {
        for _ in 0..<count { _ = loop.run(for: .zero) }
    }

    // MARK: The error queue, of a source that does not ask for errors

    @Test(arguments: [Events.read, [.read, .closed], [.read, .priority], .closed, [.write, .read]], [false, true])
    func `a message in the error queue is no reason to call a source again and again`(events: Events, hasNeighbor: Bool) throws {
        let calls = try inManualTime { loop, _, trace in
            let socket = UnansweredSocket()
            let isFilled = events.contains(.write)
            let calls = Box(0)
            let source = try RunLoop.DescriptorSource(descriptor: socket.descriptor, events: events) { source, _ in
                calls.value += 1
                _ = socket.receive()
                if isFilled { source.events = .read }
            }
            loop.add(source)
            if hasNeighbor {
                loop.add(try RunLoop.DescriptorSource(descriptor: socket.descriptor, events: .read) { _, _ in })
            }
            socket.sendInVain()
            Self.poll(loop, 200)
            return calls.value
        }
        #expect((1...6).contains(calls))
    }

    @Test func `a source that has been busy for long is called about a thousand times at most for a message in the error queue`() throws {
        let calls = try inManualTime { loop, _, trace in
            let socket = UnansweredSocket()
            socket.openPeer()
            let calls = Box(0)
            loop.add(
                try RunLoop.DescriptorSource(descriptor: socket.descriptor, events: .read) { _, _ in
                    calls.value += 1
                    _ = socket.receive()
                })
            for _ in 0..<1_100 {
                socket.sendFromPeer("x")
                _ = loop.run(for: .zero)
            }
            calls.value = 0
            socket.closePeer()
            socket.sendInVain()
            Self.poll(loop, 4_000)
            let first = calls.value
            socket.sendInVain()
            Self.poll(loop, 1_000)
            return (first, calls.value - first)
        }
        #expect((1...1_030).contains(calls.0))
        #expect((1...2).contains(calls.1), "from then on a message costs no more than two calls")
    }

    @Test(arguments: [Events.read, [.read, .closed], [.read, .priority]])
    func `data behind a message in the error queue is reported as long as it lasts, and later errors are reported`(events: Events) throws {
        let trace = try inManualTime { loop, _, trace in
            let socket = UnansweredSocket()
            let received = Trace()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: socket.descriptor, events: events) { _, _ in
                    let text = socket.receive()
                    if text != "nothing" { received.add(text) }
                })
            socket.sendInVain()
            Self.poll(loop, 50)
            socket.sendInVain()
            Self.poll(loop, 50)
            socket.openPeer()
            for text in ["a", "b", "c"] { socket.sendFromPeer(text) }
            Self.poll(loop, 50)
            socket.sendFromPeer("d")
            Self.poll(loop, 50)
            socket.closePeer()
            socket.sendInVain()
            Self.poll(loop, 50)
            // The messages are still there.
            precondition(socket.takeError() && socket.takeError())
            return received.description
        }
        #expect(trace == "refused refused a b c d refused")
    }

    @Test func `a one-shot source that is armed again is not called again and again for a message in the error queue`() throws {
        let result = try inManualTime { loop, _, trace in
            let socket = UnansweredSocket()
            let received = Trace()
            let calls = Box(0)
            loop.add(
                try RunLoop.DescriptorSource(descriptor: socket.descriptor, events: .read, trigger: .oneShot) { source, _ in
                    calls.value += 1
                    let text = socket.receive()
                    if text != "nothing" { received.add(text) }
                    source.rearm()
                })
            socket.sendInVain()
            Self.poll(loop, 200)
            let first = calls.value
            socket.sendInVain()
            Self.poll(loop, 200)
            let second = calls.value - first
            socket.openPeer()
            for text in ["a", "b", "c"] { socket.sendFromPeer(text) }
            Self.poll(loop, 200)
            return (first, second, calls.value - first - second, received.description)
        }
        #expect((1...6).contains(result.0))
        #expect((1...3).contains(result.1))
        #expect((3...6).contains(result.2))
        #expect(result.3 == "refused refused a b c")
    }

    @Test func `a run that serves one source serves a muted one, and does not lose its report`() throws {
        let trace = try inManualTime { loop, _, trace in
            let socket = UnansweredSocket()
            let pipe = Pipe()
            let received = Trace()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: socket.descriptor, events: .read) { _, _ in
                    let text = socket.receive()
                    if text != "nothing" { received.add(text) }
                })
            loop.add(try readSource(pipe) { _ in received.add("pipe") })
            socket.sendInVain()
            Self.poll(loop, 50)
            socket.sendInVain()
            pipe.write()
            for _ in 0..<2 { _ = loop.run(mode: .default, for: .zero, returnAfterSourceHandled: true) }
            return received.list.sorted().joined(separator: " ")
        }
        #expect(trace == "pipe refused refused")
    }

    @Test func `a pipe that has lost its reader ends a source that writes, and wakes one that only looks`() throws {
        let calls = try inManualTime { loop, _, _ in
            let ends = RawPipe()
            let calls = Box(0)
            loop.add(try RunLoop.DescriptorSource(descriptor: ends.writeEnd, events: .read) { _, _ in calls.value += 1 })
            Self.poll(loop, 10)
            precondition(calls.value == 0)
            ends.closeReadEnd()
            Self.poll(loop, 100)
            return withExtendedLifetime(ends) { calls.value }
        }
        #expect((1...6).contains(calls))
    }

    // MARK: error

    @Test(arguments: [Events.error, [.read, .error], [.read, .closed, .error]])
    func `a source that asks for errors is called with the error alone, until it has taken it`(events: Events) throws {
        let trace = try inManualTime { loop, _, trace in
            let socket = UnansweredSocket()
            let calls = Trace()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: socket.descriptor, events: events) { _, ready in
                    calls.add(describe(ready))
                    if calls.list.count < 3 { return }
                    if ready.contains(.error) { calls.add("\(socket.takeError())") }
                    if ready.contains(.read) { calls.add(socket.receive()) }
                })
            socket.sendInVain()
            Self.poll(loop, 3)
            // The pending error is taken with the message.
            calls.add("taken")
            Self.poll(loop, 10)
            socket.openPeer()
            socket.sendFromPeer("data")
            Self.poll(loop, 10)
            return calls.description
        }
        #expect(trace == "error error error true taken" + (events.contains(.read) ? " read data" : ""))
    }

    @Test func `an edge-triggered source for errors is called once for each`() throws {
        let trace = try inManualTime { loop, _, _ in
            let socket = UnansweredSocket()
            let calls = Trace()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: socket.descriptor, events: .error, trigger: .edge) { _, ready in
                    calls.add(describe(ready))
                })
            socket.sendInVain()
            Self.poll(loop, 10)
            calls.add("again")
            socket.sendInVain()
            Self.poll(loop, 10)
            return calls.description
        }
        #expect(trace == "error again error")
    }

    @Test func `a hang-up makes a source that asks for errors ready for all its events`() throws {
        let trace = try inManualTime { loop, _, trace in
            let pair = SocketPair()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pair.near, events: [.read, .error]) { _, ready in
                    withExtendedLifetime(pair) { trace.add(describe(ready)) }
                    loop.stop()
                })
            pair.closeFarVisibly()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "read+error -> stopped")
    }

    // MARK: priority

    @Test func `urgent data calls a source that asks for it until it is read, and other data does not`() throws {
        let trace = try inManualTime { loop, _, trace in
            let (near, far) = connectedTCP()
            let calls = Trace()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: near, events: .priority) { source, ready in
                    calls.add(describe(ready))
                    if calls.list.count < 3 { return }
                    var byte: UInt8 = 0
                    precondition(recv(source.descriptor, &byte, 1, Int32(MSG_OOB)) == 1)
                    calls.add(String(UnicodeScalar(byte)))
                })
            precondition(send(far, "data", 4, 0) == 4)
            try waitUntilReadable(near, "the data")
            Self.poll(loop, 3)
            calls.add("urgent")
            precondition(send(far, "!", 1, Int32(MSG_OOB)) == 1)
            var entry = pollfd(fd: near, events: Int16(POLLPRI), revents: 0)
            precondition(Glibc.poll(&entry, 1, 60_000) == 1)
            Self.poll(loop, 10)
            close(near)
            close(far)
            return calls.description
        }
        #expect(trace == "urgent priority priority !")
    }

    @Test func `a one-shot source for urgent data that its handler arms again is called once in each pass`() throws {
        let calls = try inManualTime { loop, _, _ in
            let (near, far) = connectedTCP()
            let calls = Box(0)
            let source = try RunLoop.DescriptorSource(descriptor: near, events: .priority, trigger: .oneShot) { source, _ in
                // Without this bound, a pass that serves the source without end would never fail.
                if calls.increment() < 100 { source.rearm() }
            }
            loop.add(source)
            precondition(send(far, "!", 1, Int32(MSG_OOB)) == 1)
            var entry = pollfd(fd: near, events: Int16(POLLPRI), revents: 0)
            precondition(Glibc.poll(&entry, 1, 60_000) == 1)
            var seen: [Int] = []
            for _ in 0..<3 {
                Self.poll(loop, 1)
                seen.append(calls.value)
            }
            source.invalidate()
            close(near)
            close(far)
            return seen
        }
        #expect(calls == [1, 2, 3])
    }

    @Test func `a source that a handler makes for urgent data that is there already is called in the next pass`() throws {
        let calls = try inManualTime { loop, _, _ in
            let (near, far) = connectedTCP()
            let (calls, sources) = (Box(0), Box<[RunLoop.DescriptorSource]>([]))
            let handler = Box<(@Sendable (RunLoop.DescriptorSource) -> Void)?>(nil)
            let addSource: @Sendable () -> Void = {
                // A socket can be watched.
                let source = try! RunLoop.DescriptorSource(descriptor: near, events: .priority, trigger: .edge) { source, _ in
                    handler.value?(source)
                }
                sources.change { $0.append(source) }
                loop.add(source)
            }
            handler.value = { source in
                source.invalidate()
                if calls.increment() < 100 { addSource() }
            }
            precondition(send(far, "!", 1, Int32(MSG_OOB)) == 1)
            var entry = pollfd(fd: near, events: Int16(POLLPRI), revents: 0)
            precondition(Glibc.poll(&entry, 1, 60_000) == 1)
            addSource()
            var seen: [Int] = []
            for _ in 0..<3 {
                Self.poll(loop, 1)
                seen.append(calls.value)
            }
            handler.value = nil
            for source in sources.value { source.invalidate() }
            close(near)
            close(far)
            return seen
        }
        #expect(calls == [1, 2, 3])
    }
}

/// Two connected TCP sockets.
private func connectedTCP() -> (Int32, Int32) {
    let listener = socket(AF_INET, SocketKind.stream | Int32(SOCK_CLOEXEC.rawValue), 0)
    defer { close(listener) }
    let address = bindToLoopback(listener)
    precondition(listen(listener, 1) == 0)
    let near = socket(AF_INET, SocketKind.stream | Int32(SOCK_CLOEXEC.rawValue), 0)
    precondition(withSocketAddress(address) { connect(near, $0, $1) } == 0)
    let far = accept(listener, nil, nil)
    precondition(far >= 0)
    return (near, far)
}
#endif
