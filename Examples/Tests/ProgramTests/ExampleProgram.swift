// The programs under test, and the sockets of their peers.

#if os(Linux)

import Glibc
import TestSupport
import Testing

/// A running program of this package. Its standard input and output are files or pipes. `deinit` kills and reaps it.
final class ExampleProgram {
    private let child: Child

    /// `input` and `output` are names of files or FIFOs. The shell's `exec` leaves one process.
    init(_ name: String, _ arguments: [String], input: String = "/dev/null", output: String = "/dev/null") throws {
        let words = [try builtProgramPath(name)] + arguments
        child = Child("/bin/sh", ["-c", "exec " + words.map { "'\($0)'" }.joined(separator: " ") + " <'\(input)' >'\(output)'"])
    }

    var pid: Int32 { child.pid }
    func end() { child.kill(SIGTERM) }
    func interrupt() { child.kill(SIGINT) }
    func status(_ location: SourceLocation = #_sourceLocation) -> Int32? { waitForEnd(of: child.pid, location) }
}

/// A connected Unix socket of a test. Blocking.
final class Peer {
    let descriptor: Int32
    private var unread: [UInt8] = []

    /// Takes over a descriptor.
    init(_ descriptor: Int32) { self.descriptor = descriptor }

    /// Connects when a program listens there.
    convenience init(to path: String, _ location: SourceLocation = #_sourceLocation) throws {
        let descriptor = socket(AF_UNIX, 1, 0)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        try waitUntil("a program listens at \(path)", location) { withUnixAddress(path) { connect(descriptor, $0, $1) == 0 } }
        self.init(descriptor)
    }

    deinit { close(descriptor) }

    func send(_ text: String, _ location: SourceLocation = #_sourceLocation) throws { try send(Array(text.utf8), location) }

    func send(_ bytes: [UInt8], _ location: SourceLocation = #_sourceLocation) throws {
        var sent = 0
        while sent < bytes.count {  // ends: each turn sends something, or fails
            let count = bytes.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress! + sent, $0.count - sent, Int32(MSG_NOSIGNAL)) }
            try #require(count > 0, "send: errno \(errno)", sourceLocation: location)
            sent += count
        }
    }

    /// `send` is for sockets. A few bytes, which a pipe takes at once.
    func writeToPipe(_ text: String) throws { try #require(write(descriptor, text, text.utf8.count) == text.utf8.count) }

    /// How many bytes the peer's side takes until it takes no more for now.
    func sendUntilFull(_ bytes: [UInt8]) throws -> Int {
        var sent = 0
        var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        // Ends: the receiver is bounded. A pause of this length means that the proxy sleeps; if the machine is busy, the test sends less.
        while sent < bytes.count, poll(&entry, 1, 300) == 1 {
            let count = bytes.withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress! + sent, $0.count - sent, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
            }
            guard count > 0 else { break }
            sent += count
        }
        return sent
    }

    func finishWriting() { shutdown(descriptor, Int32(SHUT_WR)) }

    /// The next line without its LF; nil at the end.
    func line(_ location: SourceLocation = #_sourceLocation) throws -> String? {
        while true {  // ends: with a line, or with the connection
            if let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
                defer { unread.removeSubrange(...end) }
                return String(decoding: unread[..<end], as: UTF8.self)
            }
            guard let piece = try readPiece(descriptor, "a line", location) else { return nil }
            unread += piece
        }
    }

    /// The number of bytes until the end, and what `bytes` says of each.
    func readToTheEnd(_ expected: [UInt8]) throws -> Int {
        var count = 0
        while let piece = try readPiece(descriptor, "the rest") {  // ends: with the connection
            #expect(piece.elementsEqual(expected[count..<min(expected.count, count + piece.count)]))
            count += piece.count
        }
        return count
    }
}

/// A listening Unix socket of a test.
final class Listener {
    private let descriptor: Int32

    init(at path: String) throws {
        descriptor = socket(AF_UNIX, 1, 0)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        try #require(withUnixAddress(path) { bind(descriptor, $0, $1) } == 0 && listen(descriptor, 8) == 0, "listen: errno \(errno)")
    }

    deinit { close(descriptor) }

    func accept(_ location: SourceLocation = #_sourceLocation) throws -> Peer {
        try waitUntilReadable(descriptor, "a connection", location)
        let connection = Glibc.accept(descriptor, nil, nil)
        try #require(connection >= 0, "accept: errno \(errno)", sourceLocation: location)
        _ = fcntl(connection, F_SETFD, FD_CLOEXEC)
        return Peer(connection)
    }
}

/// The reading end of a new FIFO, for a program's output. `line` returns nil when the program has ended, and everything it has started.
func makeOutput(_ path: String) throws -> Peer {
    try #require(mkfifo(path, 0o600) == 0)
    // Without a wait for the writer. Until it has come, nothing is readable, not even the end.
    return Peer(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC))
}

/// The writing end of a new FIFO, for a program's input. The input ends when this is released.
func makeInput(_ path: String) throws -> Peer {
    try #require(mkfifo(path, 0o600) == 0)
    return Peer(open(path, O_RDWR | O_CLOEXEC))  // only for writing, the call would wait for the reader
}

/// Calls `body` with a folder, which is removed afterwards.
func withFolder(_ body: (String) throws -> Void) throws {
    let folder = makeTemporaryDirectory(in: "/tmp")
    defer { removeFlatDirectory(folder) }
    try body(folder)
}

func write(_ text: String, to file: String) throws {
    let descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    try #require(descriptor >= 0, "open \(file): errno \(errno)")
    defer { close(descriptor) }
    let bytes = Array(text.utf8)
    try #require(write(descriptor, bytes, bytes.count) == bytes.count)
}

func text(of file: String) throws -> String {
    let descriptor = open(file, O_RDONLY)
    try #require(descriptor >= 0, "open \(file): errno \(errno)")
    defer { close(descriptor) }
    return drain(descriptor)
}

#endif
