// Rules proved here (InheritedSocket.swift, SocketSource.init(adoptingListener:)):
// - Inherited descriptors have their names, kinds and addresses, and are close-on-exec.
// - A source adopts a listener: it serves it as its own, but leaves the file of a Unix path alone. It refuses every other descriptor.
// - If the listener is blocking, no thread waits for a connection that another one has accepted.
// - If another holder shuts the listener down, the source fails.

import EventLoopTestSupport
import Synchronization
import Testing

@testable import EventLoop
@testable import EventLoopSupervisor

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Where two threads meet, to go on at the same moment.
private final class Meeting: Sendable {
    private let arrivals = Atomic<Int>(0)

    func arrive() {
        arrivals.add(1, ordering: .acquiringAndReleasing)
        var looks = 0
        // A pause would be longer than what they are to do together.
        while arrivals.load(ordering: .acquiring) < 2 {  // ends: with the other thread
            looks += 1
            if looks % 10_000 == 0 { breathe() }
        }
    }
}

/// A source on the loop that closes the connections that it accepts, and how many these were.
private func countingListener(_ descriptor: Int32, on loop: RunLoop) throws -> (source: RunLoop.SocketSource, accepted: Box<Int>) {
    let accepted = Box(0)
    let source = try RunLoop.SocketSource(adoptingListener: descriptor) { _, connection, _ in
        closeDescriptor(connection)
        accepted.increment()
    }
    loop.add(source)
    return (source, accepted)
}

@Suite(.tags(.threads)) struct InheritedSocketTests {
    private static func environment(_ count: Int, names: String? = nil) -> [String: String] {
        var environment = ["LISTEN_PID": "\(getpid())", "LISTEN_FDS": "\(count)"]
        environment["LISTEN_FDNAMES"] = names
        return environment
    }

    @Test func `inherited descriptors have names, kinds and addresses, and are not inherited further`() throws {
        let folder = SocketFolder()
        let pipe = Pipe()
        let made = [
            listeningSocket(.ipv4(host: "127.0.0.1", port: 0)), listeningSocket(.unix(path: folder.file("listener"))),
            boundSocket(datagramType, .unix(path: folder.file("datagrams"))), boundSocket(streamType, .ipv4(host: "127.0.0.1", port: 0)),
            dup(pipe.readEnd),
        ]
        let first = consecutive(made)
        defer { for descriptor in first..<first + 5 { closeDescriptor(descriptor) } }
        let supervisor = try RunLoop.Supervisor(environment: Self.environment(5, names: "http:local:log::fifo"), firstDescriptor: first)
        let sockets = supervisor.sockets
        #expect(sockets.map(\.descriptor) == Array(first..<first + 5))
        #expect(sockets.map(\.name) == ["http", "local", "log", "", "fifo"])
        #expect(sockets.map(\.kind) == [.listener, .listener, .datagram, .stream, .other])
        #expect(sockets[0].address?.port != 0 && "\(sockets[0].address!)".hasPrefix("127.0.0.1:"))
        #expect(sockets[1].address == .unix(path: folder.file("listener")) && sockets[4].address == nil)
        for socket in sockets { #expect(fcntl(socket.descriptor, F_GETFD) & FD_CLOEXEC != 0) }
        #expect(supervisor.sockets(named: "http") == [sockets[0]] && supervisor.sockets(named: "unknown").isEmpty)

        let unnamed = try RunLoop.Supervisor(environment: Self.environment(2), firstDescriptor: first)
        #expect(unnamed.sockets(named: "unknown").count == 2)
    }

    @Test func `a descriptor that is not open is an error that names it`() throws {
        let first = consecutive([dup(0), dup(0)])
        closeDescriptor(first)
        closeDescriptor(first + 1)
        // No other test opens this number: it is far above theirs.
        let error = #expect(throws: RunLoop.SupervisorError.self) {
            try RunLoop.Supervisor(environment: Self.environment(1, names: "http"), firstDescriptor: first)
        }
        #expect("\(try #require(error))" == "inherited descriptor \(first) (\"http\"): Bad file descriptor (EBADF)")
    }

    @Test(arguments: AddressKind.present)
    func `a source adopts a listener, and leaves its file alone`(kind: AddressKind) throws {
        let folder = SocketFolder()
        let descriptor = listeningSocket(kind.address(in: folder))
        try onFreshThread { loop in
            let accepted = Box(0)
            let source = try RunLoop.SocketSource(adoptingListener: descriptor, label: "inherited") { source, connection, _ in
                #expect(loop.isCurrent && isNonBlockingAndCloseOnExec(connection))
                closeDescriptor(connection)
                accepted.increment()
            }
            #expect(source.descriptor == descriptor && fcntl(descriptor, F_GETFD) & FD_CLOEXEC != 0)
            loop.add(source)
            let client = connectedClient(to: try #require(source.localAddress))
            #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
            #expect(accepted.value == 1)
            closeDescriptor(client)
            source.invalidate()
            #expect(source.descriptor == -1)
        }
        if kind == .unix { #expect(fileExists(folder.file())) }
    }

    @Test func `a pass accepts all that wait at a blocking listener, and does not wait for another one`() throws {
        let folder = SocketFolder()
        let descriptor = listeningSocket(.unix(path: folder.file()))
        #expect(fcntl(descriptor, F_GETFL) & O_NONBLOCK == 0)
        try onFreshThread { loop in
            let (source, accepted) = try countingListener(descriptor, on: loop)
            let clients = (0..<2).map { _ in connectedClient(to: source.localAddress!) }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(accepted.value == 2)
            for client in clients { closeDescriptor(client) }
            source.invalidate()
        }
    }

    @Test func `of two threads that accept from a blocking listener at the same moment, neither waits for another connection`() throws {
        let folder = SocketFolder()
        let listener = try ListeningSocket(adopting: listeningSocket(.unix(path: folder.file())))
        for round in 0..<1_000 / roundsDivisor {
            let client = connectedClient(to: .unix(path: folder.file()))
            let (start, accepted) = (Meeting(), Box(0))
            let threads = (0..<2).map { _ in
                plainThread {
                    start.arrive()
                    if case .connection(let descriptor, _) = listener.accept() {
                        closeDescriptor(descriptor)
                        accepted.increment()
                    }
                }
            }
            // One that waits in accept(2) does not end: nobody else connects.
            for thread in threads { try thread.join(within: .seconds(60)) }
            #expect(accepted.value == 1, "round \(round)")
            closeDescriptor(client)
        }
    }

    @Test(arguments: AddressKind.present, [true, false])
    func `an adopted listener fails if another holder of the socket shuts it down`(kind: AddressKind, isBlocking: Bool) throws {
        let folder = SocketFolder()
        let descriptor = listeningSocket(kind.address(in: folder))
        if !isBlocking { precondition(fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0, "fcntl: errno \(errno)") }
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        try onFreshThread { loop in
            let (source, accepted) = try countingListener(descriptor, on: loop)
            let address = try #require(source.localAddress)
            let client = connectedClient(to: address)
            shutdown(copy, Int32(SHUT_RD))
            #expect(loop.run(for: .seconds(60)) == .finished)
            #expect(source.failure == .system(operation: "accept on \(address)", errno: EINVAL))
            // A Unix socket keeps its queue; one of TCP resets those who wait.
            if case .unix = address { #expect(accepted.value == 1) }
            closeDescriptor(client)
        }
        closeDescriptor(copy)
    }

    @Test func `a source refuses what is no listener, which remains the caller's`() throws {
        let folder = SocketFolder()
        let pipe = Pipe()
        let others = [
            boundSocket(datagramType, .unix(path: folder.file("a"))), boundSocket(streamType, .unix(path: folder.file("b"))),
            dup(pipe.readEnd),
        ]
        for descriptor in others {
            let error = #expect(throws: RunLoop.SourceError.self) { try RunLoop.SocketSource(adoptingListener: descriptor) { _, _, _ in } }
            #expect("\(try #require(error))".contains("descriptor \(descriptor)"))
            #expect(fcntl(descriptor, F_GETFD) >= 0)
            closeDescriptor(descriptor)
        }
        #expect(throws: RunLoop.SourceError.badDescriptor(-1)) { try RunLoop.SocketSource(adoptingListener: -1) { _, _, _ in } }
    }
}
