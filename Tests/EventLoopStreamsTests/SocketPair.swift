// Two connected sockets for tests of streams: one for the stream, one for the test.

import CStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The stream owns `ours`; the test owns `peer`, which is non-blocking and closed with this object.
final class SocketPair: Sendable {
    let ours: Int32
    let peer: Int32
    private let isPeerOpen = Box(true)

    init() {
        (ours, peer) = connectedSockets()
        precondition(fcntl(peer, F_SETFL, fcntl(peer, F_GETFL) | O_NONBLOCK) == 0)
    }

    deinit { closePeer() }

    func closePeer() {
        if isPeerOpen.change({ isOpen in
            defer { isOpen = false }; return isOpen
        }) {
            close(peer)
        }
    }

    func finishPeer() { _ = shutdown(peer, Int32(SHUT_WR)) }

    /// All of it fits into the socket's buffer.
    func send(_ text: String) { send(Array(text.utf8)) }

    func send(_ bytes: [UInt8]) {
        let count = bytes.withUnsafeBytes { write(peer, $0.baseAddress, $0.count) }
        precondition(count == bytes.count, "write: \(count), errno \(errno)")
    }

    /// As much as the socket takes; returns how much that was.
    func sendUntilFull() -> Int {
        let piece = [UInt8](repeating: 7, count: 4_096)
        var total = 0
        while true {  // ends: the buffer of the socket is finite
            let count = piece.withUnsafeBytes { cstreams_write(peer, Int32(CSTREAMS_SOCKET.rawValue), $0.baseAddress, $0.count) }
            if count <= 0 { return total }
            total += count
        }
    }

    /// What has come; nil if the stream has ended its side and everything was read.
    func received() -> String? { receivedBytes().map { String(decoding: $0, as: UTF8.self) } }

    func receivedBytes() -> [UInt8]? {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {  // ends: the socket is empty, or at its end
            let count = read(peer, &buffer, buffer.count)
            if count == 0 && bytes.isEmpty { return nil }
            if count <= 0 { return bytes }
            bytes += buffer[..<count]
        }
    }
}
