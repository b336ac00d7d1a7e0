// Helpers of the tests of sockets: clients and listeners that do not use the library, and addresses.

import CPlatform
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

typealias SocketAddress = RunLoop.SocketAddress

/// A folder for the Unix paths of one test. It is removed with its contents.
final class SocketFolder: Sendable {
    // A socket's address has room for about a hundred bytes.
    let path = makeTemporaryDirectory(in: "/tmp")

    deinit { removeFlatDirectory(path) }

    func file(_ name: String = "socket") -> String { path + "/" + name }
}

func fileExists(_ path: String) -> Bool { access(path, F_OK) == 0 }

let hasIPv6: Bool = {
    let source = try? RunLoop.SocketSource(listeningOn: .ipv6(host: "::1", port: 0)) { _, descriptor, _ in close(descriptor) }
    return source != nil
}()

enum AddressKind: String, CaseIterable, Codable, Sendable {
    case ipv4, ipv6, unix, abstract

    static var present: [AddressKind] {
        #if os(Linux)
        allCases.filter { $0 != .ipv6 || hasIPv6 }
        #else
        allCases.filter { $0 != .abstract && ($0 != .ipv6 || hasIPv6) }
        #endif
    }

    func address(in folder: SocketFolder) -> SocketAddress {
        switch self {
        case .ipv4: .ipv4(host: "127.0.0.1", port: 0)
        case .ipv6: .ipv6(host: "::1", port: 0)
        case .unix: .unix(path: folder.file())
        case .abstract: .unix(path: "\0" + folder.path)
        }
    }
}

extension SocketAddress {
    var native: cplatform_address {
        var native = cplatform_address()
        let isGood =
            switch self {
            case .ipv4(let host, let port): cplatform_make_ipv4(&native, host, port)
            case .ipv6(let host, let port): cplatform_make_ipv6(&native, host, port)
            case .unix(let path): cplatform_make_unix(&native, path, UInt32(path.utf8.count))
            }
        precondition(isGood)
        return native
    }

    var port: UInt16? {
        switch self {
        case .ipv4(_, let port), .ipv6(_, let port): port
        case .unix: nil
        }
    }
}

/// Connects to a listening socket on this machine. The kernel connects at once, whether or not the listener accepts. The caller closes it.
///
/// When this returns, a Unix connection is in the listener's queue. A TCP connection may take longer: its last segment is in transit.
func connectedClient(to address: SocketAddress) -> Int32 {
    var native = address.native
    let descriptor = cplatform_make_socket(&native)
    precondition(descriptor >= 0, "socket: errno \(errno)")
    let code = cplatform_connect(descriptor, &native)
    precondition(code == 0 || code == EINPROGRESS, "connect: errno \(code)")
    do { try waitUntilWritable(descriptor, "the connection is made") } catch { preconditionFailure("\(error)") }
    return descriptor
}

/// A listener that accepts nothing, with a queue for one more connection than `room`. It closes its socket when it is released.
final class DeafListener: Sendable {
    let descriptor: Int32
    let address: SocketAddress
    private let fillers = Box<[Int32]>([])

    init(_ address: SocketAddress, room: Int32 = 0) {
        var native = address.native
        descriptor = cplatform_make_socket(&native)
        precondition(cplatform_listen(descriptor, &native, room, false, false) == nil, "errno \(errno)")
        var local = cplatform_address()
        cplatform_local_address(descriptor, &local)
        switch address {
        case .ipv4(let host, _): self.address = .ipv4(host: host, port: cplatform_address_port(&local))
        case .ipv6(let host, _): self.address = .ipv6(host: host, port: cplatform_address_port(&local))
        case .unix: self.address = address
        }
    }

    deinit {
        close(descriptor)
        for filler in fillers.value { close(filler) }
        if case .unix(let path) = address { unlink(path) }
    }

    /// Fills the queue of a listener without `room`: later connections are not established.
    func fill() {
        let client = connectedClient(to: address)
        fillers.change { $0.append(client) }
        // Only then the kernel knows that there is no room.
        do { try waitUntilReadable(descriptor, "the connection is in the queue") } catch { preconditionFailure("\(error)") }
    }

    /// Accepts one connection and closes it.
    func acceptOne() {
        var peer = cplatform_address()
        let accepted = cplatform_accept(descriptor, &peer, false)
        precondition(accepted >= 0, "accept: errno \(-accepted)")
        close(accepted)
    }
}

func isNonBlockingAndCloseOnExec(_ descriptor: Int32) -> Bool {
    fcntl(descriptor, F_GETFL) & O_NONBLOCK != 0 && fcntl(descriptor, F_GETFD) & FD_CLOEXEC != 0
}

/// A listener that records and closes its connections.
func listener(
    on address: SocketAddress = .ipv4(host: "127.0.0.1", port: 0), _ trace: Trace, priority: RunLoop.Priority = .default,
    then body: @escaping @Sendable (RunLoop.SocketSource) -> Void = { _ in }
) throws -> RunLoop.SocketSource {
    try RunLoop.SocketSource(listeningOn: address, priority: priority) { source, descriptor, _ in
        trace.add("accept")
        close(descriptor)
        body(source)
    }
}
