// Rules proved here (semantics 17.22, 17.25): an unwanted descriptor whose close blocks keeps nobody waiting.
//  - At a port: the descriptor is ignored, not taken, sent with half a message or without one, unread, on a connection that is never
//    accepted, sent when the process has no free descriptor, sent with an urgent byte, or of a pipe whose lock another thread holds.
//  - At a client: it comes with a reply, is unread, or comes from a server that has closed.
//  - Closes that block for one process do not delay those for another.
//  - While they block, a half of a message keeps its memory only as long as nobody else waits for memory.

#if os(Linux)

import CLibevent
import EventLoopTestSupport
import Glibc
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

/// A TCP connection whose close blocks: it has SO_LINGER, unsent bytes, and a peer that reads nothing. A copy in a child process would keep
/// the close from blocking, so no child inherits it.
final class LingeringSocket {
    /// Longer than all other waits here, so that a test that waits for a close fails.
    static let seconds: Int32 = 300
    private(set) var descriptor: Int32
    private let peer: Int32

    init() throws {
        let kind = SocketKind.stream | Int32(SOCK_CLOEXEC.rawValue)
        let listener = socket(AF_INET, kind, 0)
        defer { close(listener) }
        // The peer has room for less than the kernel takes from the sender. So bytes stay unsent, even if a busy kernel delivers them only
        // after the sender has found no more room.
        var room: Int32 = 4_096
        try #require(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, socklen_t(MemoryLayout<Int32>.size)) == 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let client = socket(AF_INET, kind, 0)
        let isConnected = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, $0, &size) == 0
                    && connect(client, $0, size) == 0
            }
        }
        try #require(isConnected)
        peer = systemAccept4(listener, nil, nil, Int32(SOCK_CLOEXEC.rawValue))
        descriptor = client
        var option = linger(l_onoff: 1, l_linger: Self.seconds)
        try #require(setsockopt(client, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size)) == 0)
        let bytes = [UInt8](repeating: 1, count: 1 << 16)
        while send(client, bytes, bytes.count, Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL)) > 0 {}  // ends: the peer reads nothing
    }

    /// Closes this descriptor, so that only its copies are left.
    func closeOwnDescriptor() {
        // Does not block, because the sent message has a copy.
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }

    deinit {
        // A reset unblocks all closes.
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(peer, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
        close(peer)
        closeOwnDescriptor()
    }
}

/// A pipe whose lock a thread holds while it waits for bytes to splice. Until then every call for the pipe blocks, close(2) and fcntl(2) too.
private final class LockedPipe {
    private var readEnd: Int32
    private let writeEnd: Int32
    private let (near, far) = connectedSockets()
    private let thread: JoinableThread<Void>

    init() throws {
        var ends: [Int32] = [-1, -1]
        precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
        (readEnd, writeEnd) = (ends[0], ends[1])
        let (source, target) = (near, writeEnd)
        let id = Box(0)
        thread = plainThread {
            // Without a reader splice(2) raises it.
            var pipeSignals = sigset_t()
            sigemptyset(&pipeSignals)
            sigaddset(&pipeSignals, SIGPIPE)
            pthread_sigmask(SIG_BLOCK, &pipeSignals, nil)
            id.value = Int(systemGettid())
            _ = systemSplice(source, nil, target, nil, 1, 0)
        }
        try waitUntil("the thread sleeps in splice") {
            let path = "/proc/self/task/\(id.value)/stat"
            guard id.value != 0, let file = fopen(path, "re") else { return false }
            defer { fclose(file) }
            var line = [CChar](repeating: 0, count: 256)
            guard fgets(&line, Int32(line.count), file) != nil else { return false }
            return String(decoding: line.map { UInt8(bitPattern: $0) }, as: UTF8.self).contains(") S ")
        }
    }

    func send(_ descriptor: Int32, _ bytes: [UInt8]) { sendRaw(descriptor, bytes, readEnd) }

    /// Closes this descriptor, so that only its copies are left.
    func closeReadEnd() {
        // Does not block, because the sent message has a copy.
        if readEnd >= 0 { close(readEnd) }
        readEnd = -1
    }

    deinit {
        var byte: UInt8 = 1
        _ = Glibc.send(far, &byte, 1, Int32(MSG_NOSIGNAL))
        do { try thread.join() } catch { Issue.record(error) }
        closeReadEnd()
        for descriptor in [writeEnd, near, far] { close(descriptor) }
    }
}

// Glibc's overlay does not declare these.
@_silgen_name("accept4")
private func systemAccept4(
    _ listener: Int32, _ address: UnsafeMutableRawPointer?, _ size: UnsafeMutableRawPointer?, _ flags: Int32
) -> Int32
@_silgen_name("gettid") private func systemGettid() -> Int32
@_silgen_name("splice")
private func systemSplice(
    _ source: Int32, _ sourceOffset: UnsafeMutablePointer<Int64>?, _ target: Int32, _ targetOffset: UnsafeMutablePointer<Int64>?,
    _ count: Int, _ flags: UInt32
) -> Int

/// Makes as many closes block as there are closing threads, all for one process, and lets `waiting` further descriptors of that process
/// wait.
private func withBlockedCloses(from process: Int32, waiting: Int = 0, _ body: () throws -> Void) throws {
    let lingering = try (0..<DescriptorCloser.threadLimit).map { _ in try LingeringSocket() }
    for socket in lingering {
        let lastCopy = fcntl(socket.descriptor, F_DUPFD_CLOEXEC, 0)
        socket.closeOwnDescriptor()
        DescriptorCloser.close(lastCopy, from: process)
    }
    let pair = SocketPair()
    for _ in 0..<waiting { DescriptorCloser.close(fcntl(pair.near, F_DUPFD_CLOEXEC, 0), from: process) }
    try body()
    withExtendedLifetime(lingering) {}
}

/// Shorter than a close that blocks.
private let limit = Duration.seconds(60)

@Suite(.bounded, .serialized, .tags(.threads)) struct PortClosingTests {
    private func isServed(_ name: String) throws -> Bool {
        let remote = try RunLoop.RemoteMessagePort(name: name)
        return try remote.request(id: 0, data: [9], sendTimeout: limit, replyTimeout: limit) == [9]
    }

    enum Case: String, CaseIterable, Sendable {
        case ignored, notTaken, unannounced, half, unread, urgent, lockedPipe
    }

    @Test(arguments: Case.allCases)
    func `a port keeps serving while an unwanted descriptor is being closed`(what: Case) throws {
        let name = freshName()
        let port =
            what == .notTaken
            ? try RunLoop.LocalMessagePort(name: name, descriptorHandler: { _, _, data, _ in data })
            : try RunLoop.LocalMessagePort(name: name) { _, _, data in data }
        let lingering = try LingeringSocket()
        let pipe = try what == .lockedPipe ? LockedPipe() : nil
        do {
            // Sent before the port is served, so that the port's copy is the last one.
            let client = try RawClient(name)
            switch what {
            case .ignored, .notTaken: sendRaw(client.descriptor, rawFrame(descriptors: 1, length: 1, body: [5, 1]), lingering.descriptor)
            case .unannounced: sendRaw(client.descriptor, rawFrame(length: 1, body: [5, 1]) + [0xE7], lingering.descriptor)
            case .half: sendRaw(client.descriptor, rawFrame(descriptors: 1, length: 1, body: [5]), lingering.descriptor)
            case .unread:
                // The first read finds invalid bytes. The descriptor is behind them.
                client.send([UInt8](repeating: 0, count: 1 << 16))
                sendRaw(client.descriptor, [0], lingering.descriptor)
            case .urgent:
                client.send(rawFrame(length: 100))
                sendRaw(client.descriptor, [1], [lingering.descriptor], flags: Int32(MSG_OOB))
                client.send([1, 2])
            case .lockedPipe:
                pipe?.send(client.descriptor, rawFrame(descriptors: 1, length: 1, body: [5, 1]))
                pipe?.closeReadEnd()
            }
            // Without a copy in a message this would block.
            if what != .lockedPipe { lingering.closeOwnDescriptor() }
        }
        let running = RunningLoop { $0.add(port) }
        for _ in 0..<3 { #expect(try isServed(name)) }
        withExtendedLifetime((lingering, pipe)) {}
        port.invalidate()
        try running.end()
    }

    @Test func `a port ends without waiting for a descriptor from a client that it never accepted`() throws {
        let lingering = try LingeringSocket()
        let name = freshName()
        let port = try RunLoop.LocalMessagePort(name: name) { _, _, data in data }
        let client = try RawClient(name)
        sendRaw(client.descriptor, rawFrame(descriptors: 1, length: 1, body: [5, 1]), lingering.descriptor)
        lingering.closeOwnDescriptor()
        let took = ContinuousClock().measure { port.invalidate() }
        #expect(took < limit)
        #expect(client.isClosedByPort())
    }

    @Test func `a port without free descriptors keeps serving while those of a message are being closed`() throws {
        let name = freshName()
        let peer = try PeerProcess("starve", name)
        #expect(peer.line() == "ready")
        let lingering = try LingeringSocket()
        let process = try #require(try RunLoop.RemoteMessagePort(name: name).ask(4).flatMap { pid_t($0) })
        do {
            // Stopped, so that it reads only when its copies are the last ones.
            kill(process, SIGSTOP)
            defer { kill(process, SIGCONT) }
            let client = try RawClient(name)
            sendRaw(
                client.descriptor, rawFrame(descriptors: 64, length: 1, body: [5, 1]), [Int32](repeating: lingering.descriptor, count: 64))
            lingering.closeOwnDescriptor()
        }
        for _ in 0..<3 { #expect(try isServed(name)) }
        withExtendedLifetime(lingering) {}
        _ = peer.killed()
    }

    @Test(arguments: [false, true])
    func `a client does not wait while a descriptor from its server is being closed`(isRead: Bool) async {
        // In a process of its own: descriptors of other tests that wait to be closed would count too, and end the connection.
        await #expect(processExitsWith: .success) { [isRead] in
            let lingering = try LingeringSocket()
            let (near, far) = connectedSockets()
            defer { close(far) }
            let took = try ContinuousClock().measure {
                let connection = try RemoteConnection(near, engine: try PortEngine.shared(), maximumLength: 100)
                let waiter = ReplyWaiter(.thread)
                try connection.sendRequest(waiter, id: 1, data: [], descriptors: [], deadline: .distantFuture)
                sendRaw(far, rawFrame(3, length: 1, body: [5, 1]), lingering.descriptor)
                lingering.closeOwnDescriptor()
                if isRead {
                    let reply = try connection.awaitReply(waiter, .now.advanced(by: limit))
                    #expect(reply == [5])
                }
                connection.end(.becameInvalid)
                // The last reference closes the connection.
            }
            #expect(took < limit)
        }
    }

    @Test func `a server that keeps sending descriptors loses its client before the client runs out of descriptors`() async {
        // In a process of its own: another test's child of fork would have copies of the sockets, and then their closes do not block.
        await #expect(processExitsWith: .success) {
            let lingering = try LingeringSocket()
            let pair = SocketPair()
            let scratch = FrameReceiver.makeScratch()
            defer { scratch.deallocate() }
            var receiver = FrameReceiver(maximumLength: 100, takesDescriptors: false, peer: 0, scratch: scratch)
            // A single descriptor beside a reply is closed, and the reply is received.
            let reply = rawFrame(3, length: 1, body: [5, 1])
            sendRaw(pair.far, reply, lingering.descriptor)
            var isReceived = false
            if case .received = receiver.receive(from: pair.near) { isReceived = true }
            #expect(isReceived)
            // The close of a last copy blocks, so these occupy the closing threads and further descriptors wait.
            let others = try (0..<DescriptorCloser.threadLimit).map { _ in try LingeringSocket() }
            for other in others {
                sendRaw(pair.far, reply, other.descriptor)
                other.closeOwnDescriptor()
                _ = receiver.receive(from: pair.near)
            }
            var turns = 0
            while turns < 20 {  // ends: at its limit
                turns += 1
                sendRaw(pair.far, reply, [Int32](repeating: lingering.descriptor, count: 60))
                if case .failed(.protocolViolation) = receiver.receive(from: pair.near) { break }
            }
            #expect(turns < 20 && DescriptorCloser.pending < 200, "\(turns) turns, \(DescriptorCloser.pending) pending")
            withExtendedLifetime((lingering, others)) {}
        }
    }

    @Test func `a client without free descriptors ends its connection to a server that sends some`() async {
        await #expect(processExitsWith: .success) {
            let pair = SocketPair()
            var receiver = FrameReceiver(maximumLength: 100, takesDescriptors: false, peer: 0, scratch: FrameReceiver.makeScratch())
            sendRaw(pair.far, rawFrame(3, length: 1, body: [5, 1]), 0)
            let isFailed = withoutFreeDescriptors {
                if case .failed(.protocolViolation) = receiver.receive(from: pair.near) { true } else { false }
            }
            exit(isFailed ? 0 : 1)
        }
    }

    @Test func `closes that block for one process do not delay those for another`() async {
        // In a process of its own: another test's child of fork would have copies of the sockets, and then their closes do not block.
        await #expect(processExitsWith: .success) {
            try withBlockedCloses(from: 1) {
                let pair = SocketPair()
                DescriptorCloser.close(fcntl(pair.near, F_DUPFD_CLOEXEC, 0), from: 2)
                try waitUntil("the other process's descriptor is closed") { DescriptorCloser.pending(from: 2) == 0 }
                #expect(DescriptorCloser.pending(from: 1) == DescriptorCloser.threadLimit)
            }
            try waitUntil("all closes have ended") { DescriptorCloser.pending(from: 1) == 0 }
        }
    }

    @Test func `a process whose descriptors wait to be closed does not keep out those of another`() async {
        // In a process of its own: another test's child of fork would have copies of the sockets, and other tests' descriptors would count.
        await #expect(processExitsWith: .success) {
            let name = freshName()
            let limit = 64
            let server = try PortServer(try PortName(name), maximumLength: 100, descriptorLimit: limit)
            defer {
                server.withdraw()
                server.end()
            }
            try withBlockedCloses(from: 1, waiting: limit) {
                let client = try RawClient(name)
                let pair = SocketPair()
                sendRaw(client.descriptor, rawFrame(1, descriptors: 1, length: 1, body: [5, 1]), pair.near)
                var count = 0
                try waitUntil("the message is served, or its connection closed") {
                    server.serve { _, passed in
                        count = passed.count
                        return nil
                    } || client.isClosedNow
                }
                #expect(count == 1 && !client.isClosedNow)
            }
        }
    }

    @Test func `a message with descriptors waits while those that its process has sent before are being closed`() async {
        // In a process of its own, for the same reasons. Closes that do not block would let the message through.
        await #expect(processExitsWith: .success) {
            let (name, limit, clock) = (freshName(), 64, RunLoop.ManualClock())
            let server = try PortServer(try PortName(name), maximumLength: 100, descriptorLimit: limit) { clock.now }
            defer {
                server.withdraw()
                server.end()
            }
            let (client, pair) = (try RawClient(name), SocketPair())
            let count = Box(0)
            // Longer than any stall, and a check each time.
            func serve(_ turns: Int) {
                for _ in 0..<turns {
                    clock.advance(by: StallDetector.interval)
                    _ = server.serve { _, passed in
                        count.value = passed.count
                        return nil
                    }
                }
            }
            try withBlockedCloses(from: getpid(), waiting: limit) {
                sendRaw(client.descriptor, rawFrame(1, descriptors: 1, length: 1, body: [5, 1]), pair.near)
                serve(100)
                #expect(count.value == 0 && !client.isClosedNow)
            }
            try waitUntil("the message is served, or its connection closed") {
                serve(1)
                return count.value == 1 || client.isClosedNow
            }
            #expect(count.value == 1 && !client.isClosedNow)
        }
    }

    @Test func `a half of a message keeps its memory while closes block only as long as nobody else waits for memory`() async {
        // In a process of its own, for the same reasons.
        await #expect(processExitsWith: .success) {
            let (name, limit, clock, size) = (freshName(), 64, RunLoop.ManualClock(), 1 << 20)
            // Memory for three messages of this size from one process.
            let server = try PortServer(try PortName(name), maximumLength: size, descriptorLimit: limit, leastMemory: 0) { clock.now }
            defer {
                server.withdraw()
                server.end()
            }
            // Longer than a stall, and a check each time.
            func serve() {
                for _ in 0..<30 {
                    clock.advance(by: StallDetector.interval)
                    _ = server.serve { _, _ in nil }
                }
            }
            let half = rawFrame(1, length: UInt32(size), body: [UInt8](repeating: 7, count: 20_000))
            let hostile = try (0..<3).map { _ in try RawClient(name) }
            for client in hostile { client.send(half) }
            serve()
            #expect(server.limits.memory.testsOnlyGranted >= 3 * size && !server.limits.memory.hasWaiters)
            try withBlockedCloses(from: getpid(), waiting: limit) {
                // The port does not read on, because it would have to take the descriptor.
                let pair = SocketPair()
                for client in hostile { sendRaw(client.descriptor, [7], pair.near) }
                serve()
                #expect(hostile.allSatisfy { !$0.isClosedNow })
                let honest = try RawClient(name)
                honest.send(half)
                serve()
                #expect(hostile.allSatisfy { $0.isClosedNow } && !honest.isClosedNow)
                #expect(!server.limits.memory.hasWaiters)
            }
        }
    }

    @Test func `the closer closes all descriptors, also in a forked child`() async {
        await #expect(processExitsWith: .success) {
            func closesAll() -> Bool {
                let pairs = (0..<100).map { _ in SocketPair() }
                let copies = pairs.map { fcntl($0.near, F_DUPFD_CLOEXEC, 0) }
                for copy in copies { DescriptorCloser.close(copy, from: 1) }
                for _ in 0..<60_000 where DescriptorCloser.pending > 0 { usleep(1_000) }
                // Another thread may have a new file under the same number.
                let areClosed = zip(pairs, copies).allSatisfy { FileIdentity(of: $1) != FileIdentity(of: $0.near) }
                return DescriptorCloser.pending == 0 && areClosed
            }
            let isClosed = closesAll()
            let end = inForkedChild { closesAll() ? 0 : 1 }
            exit(isClosed && end.status == 0 ? 0 : 1)
        }
    }
}

#endif
