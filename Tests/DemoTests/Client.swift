// A client of the demo's server, with a blocking socket.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

/// One connection. Belongs to the thread of a test.
final class Client {
    private let descriptor: Int32

    init(port: UInt16) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let code = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(code == 0, "connect to port \(port): errno \(errno)")
    }

    deinit { close(descriptor) }

    func send(_ text: String) throws {
        let bytes = Array(text.utf8)
        try #require(Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count, "send: errno \(errno)")
    }

    /// Sends a line and waits for its answer: the server has accepted the connection then.
    func greet() throws {
        try send("hello\n")
        var answer = ""
        while !answer.hasSuffix("\n") {  // ends: with the line, or with the connection
            answer += String(decoding: try #require(try readPiece(descriptor, "the server's answer")), as: UTF8.self)
        }
        #expect(answer == "you said hello\n")
    }

    /// The end of what this client sends.
    func finish() { shutdown(descriptor, Int32(SHUT_WR)) }

    /// Reads until the server closes the connection. Empty if it did so without an answer.
    func answer() throws -> String { try readToEnd(descriptor, "the server's answer, and the end of the connection") }
}

#endif
