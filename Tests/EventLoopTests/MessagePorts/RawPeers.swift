// Hostile peers of named ports: plain sockets that send any bytes.

#if os(Linux)

import CLibevent
import EventLoopTestSupport
import Testing
import Glibc

@testable import EventLoop
@testable import EventLoopMessagePorts

/// A connection to a port that can violate the protocol.
final class RawClient: Sendable {
    let descriptor: Int32

    init(_ name: String) throws {
        descriptor = try PortRegistration.find(try PortName(name), timeout: patience)
        boundTransfers(descriptor)
    }

    deinit { close(descriptor) }

    /// Returns false if there is no room for all bytes.
    @discardableResult
    func send(_ bytes: [UInt8]) -> Bool {
        bytes.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)) }
            == bytes.count
    }

    /// Whether the port has closed the connection. Reads and discards what it has sent.
    var isClosedNow: Bool {
        var bytes = [UInt8](repeating: 0, count: 1_024)
        while true {  // ends: nothing is left to read
            let count = recv(descriptor, &bytes, bytes.count, Int32(MSG_DONTWAIT))
            if count <= 0 { return count == 0 || errno == ECONNRESET }
        }
    }

    /// Waits for the port to close the connection.
    func isClosedByPort() -> Bool {
        var byte: UInt8 = 0
        while true {  // ends: the port closes the connection, or the bound passes
            let count = recv(descriptor, &byte, 1, 0)
            if count > 0 { continue }
            return count == 0 || errno == ECONNRESET
        }
    }
}

/// Bounds every blocking call on a socket, which then fails with EAGAIN.
func boundTransfers(_ descriptor: Int32) {
    var bound = timeval(tv_sec: Int(patience.components.seconds), tv_usec: 0)
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
        precondition(setsockopt(descriptor, SOL_SOCKET, option, &bound, socklen_t(MemoryLayout<timeval>.size)) == 0, "errno \(errno)")
    }
}

/// Sends bytes with descriptors, whether or not the frames in them announce any.
func sendRaw(_ descriptor: Int32, _ bytes: [UInt8], _ passed: Int32...) { sendRaw(descriptor, bytes, passed) }

func sendRaw(_ descriptor: Int32, _ bytes: [UInt8], _ passed: [Int32], flags: Int32 = 0) {
    _ = sendDescriptors(passed, with: bytes, over: descriptor, flags: flags)
}

/// Waits until the closing threads have kept up: a port does not take descriptors of a process from which too many wait to be closed.
func waitForCloser() throws {
    try waitUntil("the closing threads have kept up") { DescriptorCloser.pending(from: getpid()) <= Frame.descriptorLimit }
}

/// The bytes of a frame, which need not be valid: a header, and `body`, which includes the seal.
func rawFrame(
    _ kind: UInt8 = 2, version: UInt8 = 1, descriptors: UInt8 = 0, length: UInt32, conversation: UInt64 = 1, id: Int32 = 1,
    body: [UInt8] = []
) -> [UInt8] {
    var bytes: [UInt8] = [0xE7, version, kind, descriptors]
    withUnsafeBytes(of: length.littleEndian) { bytes += $0 }
    withUnsafeBytes(of: conversation.littleEndian) { bytes += $0 }
    withUnsafeBytes(of: id.littleEndian) { bytes += $0 }
    return bytes + body
}

/// A server that can violate the protocol, with a name in the tests' directory, for a single client.
final class RawServer: Sendable {
    let name: String
    private let registration: PortRegistration
    private let listener: Int32
    private let thread: JoinableThread<Void>

    /// - Parameter answer: returns the bytes to send after each complete frame; nil ends the connection.
    init(_ name: String = freshName("raw"), answer: @escaping @Sendable (Frame) -> [UInt8]?) throws {
        self.name = name
        let (registration, listener) = try PortRegistration.take(try PortName(name), backlog: 8)
        (self.registration, self.listener) = (registration, listener)
        thread = plainThread {
            try waitUntilReadable(listener, "a client of the raw server")
            let client = accept(listener, nil, nil)
            if client < 0 { return }
            defer { close(client) }
            boundTransfers(client)
            var decoder = FrameDecoder(maximumLength: 1 << 20)
            var buffer = [UInt8](repeating: 0, count: 4_096)
            while case let count = recv(client, &buffer, buffer.count, 0), count > 0 {  // ends: with the connection
                buffer[..<count].withUnsafeBytes { decoder.append($0) }
                while let (frame, _) = try decoder.next() {
                    guard let bytes = answer(frame) else { return }
                    _ = bytes.withUnsafeBytes { Glibc.send(client, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
                }
            }
        }
    }

    /// Gives the name back. The connection must have ended.
    func end() throws {
        registration.withdraw()
        shutdown(listener, Int32(SHUT_RDWR))
        try thread.join()
        close(listener)
    }
}

#endif
