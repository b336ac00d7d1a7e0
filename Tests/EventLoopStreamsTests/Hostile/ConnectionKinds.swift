// Connected streams over everything that a stream can be over.

import CStreams
import EventLoop
import EventLoopStreams
import EventLoopTestSupport

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// What lies between two connected streams.
enum ConnectionKind: CaseIterable, Sendable {
    case unixSocket, tcp, pipes, memory, splitMemory

    /// The ends of those that have descriptors.
    private var descriptors: (Int32, Int32)? {
        switch self {
        case .unixSocket: connectedSockets()
        case .tcp: tcpPair()
        case .pipes, .memory, .splitMemory: nil
        }
    }

    /// Two connected streams. `others`: options of the second one, if they differ.
    func connect(
        on loop: RunLoop, and other: RunLoop? = nil, options: ByteStream.Options = .init(), others: ByteStream.Options? = nil
    ) throws -> (ByteStream, ByteStream) {
        let (second, theirs) = (other ?? loop, others ?? options)
        if let (ours, peer) = descriptors {
            return (
                try ByteStream(adopting: ours, on: loop, options: options), try ByteStream(adopting: peer, on: second, options: theirs)
            )
        }
        if self == .pipes {
            let (forth, back) = (openPipe(), openPipe())
            return (
                try ByteStream(reading: back.0, writing: forth.1, on: loop, options: options),
                try ByteStream(reading: forth.0, writing: back.1, on: second, options: theirs)
            )
        }
        let link = MemoryLink(capacity: 65_536, seed: self == .splitMemory ? 5 : nil)
        return (
            try ByteStream(over: MemoryTransport(link, end: 0), on: loop, options: options),
            try ByteStream(over: MemoryTransport(link, end: 1), on: second, options: theirs)
        )
    }
}

func openPipe() -> (Int32, Int32) {
    var ends: [Int32] = [-1, -1]
    precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
    return (ends[0], ends[1])
}

private let streamType: Int32 = {
    #if canImport(Glibc)
    Int32(SOCK_STREAM.rawValue)
    #else
    SOCK_STREAM
    #endif
}()

/// A socket that listens on a free port of 127.0.0.1.
func listenOnLoopback() -> (descriptor: Int32, address: sockaddr_in) {
    let listener = socket(AF_INET, streamType, 0)
    _ = fcntl(listener, F_SETFD, FD_CLOEXEC)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isListening = withUnsafeMutablePointer(to: &address) { address in
        address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(listener, $0, length) == 0 && listen(listener, 8) == 0 && getsockname(listener, $0, &length) == 0
        }
    }
    precondition(isListening, "listen: errno \(errno)")
    return (listener, address)
}

/// Two TCP sockets, connected over the loopback interface.
func tcpPair() -> (Int32, Int32) {
    var (listener, address) = listenOnLoopback()
    defer { close(listener) }
    let ours = socket(AF_INET, streamType, 0)
    let isConnected = withUnsafePointer(to: &address) { address in
        address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(ours, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
        }
    }
    precondition(isConnected, "connect: errno \(errno)")
    let peer = accept(listener, nil, nil)
    precondition(peer >= 0, "accept: errno \(errno)")
    for end in [ours, peer] { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    return (ours, peer)
}

/// Closes a TCP socket so that its peer gets a reset.
func closeWithReset(_ descriptor: Int32) {
    var linger = linger(l_onoff: 1, l_linger: 0)
    precondition(setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger))) == 0)
    close(descriptor)
}

/// Whether the number is an open descriptor. Only right after its owner should have closed it, and before anything else is opened; so only in
/// a process of its own.
func isOpen(_ descriptor: Int32) -> Bool { fcntl(descriptor, F_GETFD) >= 0 }

/// Runs passes without waiting until nothing more happens at once.
func settle(_ loop: RunLoop, passes: Int = 20) { for _ in 0..<passes { _ = loop.run(for: .zero) } }
