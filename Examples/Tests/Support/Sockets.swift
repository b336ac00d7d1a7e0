// Blocking clients on loopback, and the errors of the system.

import Testing

#if canImport(Glibc)
public import Glibc
#else
public import Darwin
#endif

public struct SystemFailure: Error, CustomStringConvertible {
    public let description: String
    public init(_ call: String) { description = "\(call): errno \(errno)" }
}

// SOCK_STREAM and SOCK_DGRAM on Linux and macOS. The names belong to whichever C module the compiler reads first.
let streamType: Int32 = 1
let datagramType: Int32 = 2

/// The port that a socket is bound to.
public func localPort(of descriptor: Int32) throws -> UInt16 {
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let code = withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &length) }
    }
    guard code == 0 else { throw SystemFailure("getsockname") }
    return UInt16(bigEndian: address.sin_port)
}

/// Calls `body` with the address 127.0.0.1 and `port`.
public func withLoopback<R>(port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) throws -> R) rethrows -> R {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    return try withUnsafePointer(to: &address) {
        try $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { try body($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
    }
}

/// Calls `body` with the address of a Unix socket.
public func withUnixAddress<R>(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) throws -> R) rethrows -> R {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let isShort = withUnsafeMutableBytes(of: &address.sun_path) { room in
        let bytes = Array(path.utf8)
        guard bytes.count < room.count else { return false }
        room.copyBytes(from: bytes)
        return true
    }
    precondition(isShort, "the path \(path) is too long for a socket")
    return try withUnsafePointer(to: &address) {
        try $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { try body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
    }
}

/// A connection of a blocking client. Closed when it is released.
public final class Client: Sendable {
    public let descriptor: Int32

    /// Throws if the connection is refused.
    public init(port: UInt16) throws {
        descriptor = socket(AF_INET, streamType, 0)
        guard descriptor >= 0 else { throw SystemFailure("socket") }
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        let code = withLoopback(port: port) { connect(descriptor, $0, $1) }
        guard code == 0 else {
            let failure = SystemFailure("connect")
            _ = close(descriptor)
            throw failure
        }
    }

    deinit { _ = close(descriptor) }

    public func send(_ text: String) throws {
        let bytes = Array(text.utf8)
        guard write(descriptor, bytes, bytes.count) == bytes.count else { throw SystemFailure("write") }
    }

    /// Everything until the peer closes the connection.
    public func receiveToEnd() throws -> String {
        try readToEnd(descriptor, "the server answers and closes the connection")
    }
}

/// A write to a connection that the peer has closed fails, instead of ending the process. hiredis and libevent use `write` and `writev`, which
/// know no MSG_NOSIGNAL.
public func ignoreBrokenPipes() { _ = signal(SIGPIPE, SIG_IGN) }
