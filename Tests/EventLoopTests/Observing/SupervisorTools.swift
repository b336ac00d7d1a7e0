// A service manager's end of the notification socket, and descriptors to inherit.

import CLibevent
import CPlatform
import EventLoop
import EventLoopSupervisor
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Receives notifications. The socket is closed when this object is released.
final class NotificationSocket: Sendable {
    enum Kind: String, CaseIterable, Sendable { case path, abstract }

    /// The value of NOTIFY_SOCKET.
    let name: String
    private let descriptor: Int32
    private let folder = SocketFolder()

    init(_ kind: Kind = .path) {
        let path = folder.file("notify")
        name = kind == .path ? path : "@" + path
        descriptor = boundSocket(datagramType, .unix(path: kind == .path ? path : "\0" + path))
    }

    deinit { close(descriptor) }

    /// Waits for the next notification.
    func receive(_ location: SourceLocation = #_sourceLocation) throws -> String {
        try waitUntilReadable(descriptor, "a notification", location)
        return next() ?? ""
    }

    /// The notifications that have arrived.
    func received() -> [String] {
        var all: [String] = []
        while let notification = next() { all.append(notification) }  // ends: the queue is finite
        return all
    }

    private func next() -> String? {
        var buffer = [UInt8](repeating: 0, count: 8_192)
        let count = recv(descriptor, &buffer, buffer.count, dontWait)
        return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
    }

    /// A supervisor whose service manager has this socket.
    func supervisor(watchdog: Duration? = nil) throws -> RunLoop.Supervisor {
        var environment = ["NOTIFY_SOCKET": name]
        if let watchdog { environment["WATCHDOG_USEC"] = "\(Int64(watchdog / .microseconds(1)))" }
        return try RunLoop.Supervisor(environment: environment)
    }
}

#if canImport(Glibc)
// As in SocketKind.
let datagramType = SocketKind.datagram, streamType = SocketKind.stream, packetType: Int32 = 5
private let dontWait = Int32(MSG_DONTWAIT)
#else
let datagramType = SOCK_DGRAM, streamType = SOCK_STREAM, packetType = SOCK_SEQPACKET
private let dontWait = MSG_DONTWAIT
#endif

func closeDescriptor(_ descriptor: Int32) { close(descriptor) }

/// A blocking socket that a program inherits over exec, as a service manager makes it.
func boundSocket(_ type: Int32, _ address: SocketAddress) -> Int32 {
    var native = address.native
    let family = withUnsafeBytes(of: &native.bytes) { $0.load(as: sockaddr.self).sa_family }
    let descriptor = socket(Int32(family), type, 0)
    let code = withUnsafeBytes(of: &native.bytes) {
        bind(descriptor, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t(native.length))
    }
    precondition(code == 0, "bind \(address): errno \(errno)")
    return descriptor
}

func listeningSocket(_ address: SocketAddress, type: Int32 = streamType) -> Int32 {
    let descriptor = boundSocket(type, address)
    precondition(listen(descriptor, 16) == 0, "listen: errno \(errno)")
    return descriptor
}

/// Moves descriptors to consecutive numbers, as a service manager passes them, and returns the first number. The caller closes them.
func consecutive(_ descriptors: [Int32]) -> Int32 {
    // Other tests open and close descriptors meanwhile, so an unused range is looked for far above theirs.
    var first = fcntl(descriptors[0], F_DUPFD, 600)
    while true {  // ends: numbers are finite, and few are in use
        var moved = [first]
        for descriptor in descriptors.dropFirst() {
            let copy = fcntl(descriptor, F_DUPFD, first)
            moved.append(copy)
            if copy != moved[moved.count - 2] + 1 { break }
        }
        if moved.count == descriptors.count, moved.last == first + Int32(moved.count) - 1 {
            for descriptor in descriptors { close(descriptor) }
            return first
        }
        for copy in moved { close(copy) }
        first = fcntl(descriptors[0], F_DUPFD, first + 1)
    }
}
