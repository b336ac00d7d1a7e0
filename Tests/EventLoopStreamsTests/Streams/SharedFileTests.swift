// Rules proved here (Transport/DescriptorSide.swift):
// - A stream never changes O_NONBLOCK of a socket, a pipe or a terminal, which other processes may share; and its calls never wait all the same.
// - A descriptor that was opened for writing only is never read.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

#if os(Linux)
private func isNonBlocking(_ descriptor: Int32) -> Bool { fcntl(descriptor, F_GETFL) & O_NONBLOCK != 0 }

/// What other processes could share with the program.
enum SharedFile: CaseIterable, Sendable {
    case socket, readingEnd, writingEnd, terminal

    /// The file, and a descriptor that keeps the other side open.
    func open() -> (file: Int32, other: Int32) {
        switch self {
        case .socket: return connectedSockets()
        case .readingEnd, .writingEnd:
            let ends = openPipe()
            return self == .readingEnd ? ends : (ends.1, ends.0)
        case .terminal:
            let made = makeTerminal()
            return (made.terminal, made.controller)
        }
    }
}

@Suite struct SharedFileTests {
    @Test(arguments: SharedFile.allCases, [false, true])
    func `a shared file keeps its flag while a stream uses a copy, and after it`(_ kind: SharedFile, _ isNonBlockingBefore: Bool) throws {
        try inManualTime { loop, _, _ in
            let (file, other) = kind.open()
            defer { for one in [file, other] { close(one) } }
            if isNonBlockingBefore { precondition(fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK) == 0) }
            let stream = try ByteStream(adopting: fcntl(file, F_DUPFD_CLOEXEC, 0), on: loop)
            #expect(isNonBlocking(file) == isNonBlockingBefore)
            if kind != .readingEnd { stream.send("hello\n") }
            _ = loop.run(for: .zero)
            stream.close()
            #expect(isNonBlocking(file) == isNonBlockingBefore)
        }
    }

    @Test(arguments: [SharedFile.socket, .writingEnd, .terminal])
    func `a stream to a peer that takes nothing does not wait, though its file is blocking`(_ kind: SharedFile) throws {
        try inManualTime { loop, _, _ in
            let (file, other) = kind.open()
            defer { for one in [file, other] { close(one) } }
            let stream = try ByteStream(adopting: fcntl(file, F_DUPFD_CLOEXEC, 0), on: loop)
            stream.onEnd { _, _ in }
            // Another program clears the flag, as a shell does with its terminal.
            precondition(fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK) == 0)
            var isRoom = true
            while isRoom { isRoom = stream.send([UInt8](repeating: 1, count: 10_000)) }  // ends: the file takes a finite amount
            _ = loop.run(for: .zero)
            #expect(stream.bytesWaiting > 0 && stream.isOpen)
            stream.close()
        }
    }

    @Test(arguments: [SharedFile.socket, .readingEnd, .terminal])
    func `a stream reads what comes, though its file is blocking`(_ kind: SharedFile) throws {
        try inManualTime { loop, _, trace in
            let (file, other) = kind.open()
            defer { for one in [file, other] { close(one) } }
            let stream = try ByteStream(adopting: fcntl(file, F_DUPFD_CLOEXEC, 0), on: loop)
            stream.onReceive { stream, bytes in trace.add(String(decoding: bytes.take(bytes.count), as: UTF8.self)) }
            precondition(write(other, "one\n", 4) == 4)
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["one\n"])
            stream.close()
        }
    }

    @Test func `a terminal's controlling side is not opened again: the stream has the same terminal`() throws {
        try inManualTime { loop, _, trace in
            let (controller, terminal) = makeTerminal()
            defer { close(terminal) }
            let stream = try ByteStream(adopting: controller, on: loop)
            stream.onReceive { _, bytes in trace.add(String(decoding: bytes.take(bytes.count), as: UTF8.self)) }
            precondition(write(terminal, "hello", 5) == 5)
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["hello"])
            stream.close()
        }
    }

    @Test func `the stream's own number stands for its own file`() throws {
        try inManualTime { loop, _, _ in
            let (file, other) = SharedFile.readingEnd.open()
            defer { close(other) }
            let pipe = FileIdentity(of: file)
            let stream = try ByteStream(adopting: file, on: loop)
            #expect(FileIdentity(of: file) == pipe, "the number is not free for other files, also if it is 0 or 1")
            stream.close()
            // Another test may have a file of its own under the number by now.
            #expect(FileIdentity(of: file) != pipe)
        }
    }

    @Test func `typing does not end a stream that only writes to the terminal`() throws {
        try inManualTime { loop, _, _ in
            let (controller, terminal) = makeTerminal()
            defer { for one in [controller, terminal] { close(one) } }
            let writing = open("/proc/self/fd/\(terminal)", O_WRONLY | O_NOCTTY | O_CLOEXEC)
            let stream = try ByteStream(adopting: writing, on: loop)
            stream.onEnd { _, _ in }
            precondition(write(controller, "typed\n", 6) == 6)
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(stream.isOpen)
            #expect(stream.send("still there"))
            stream.close()
        }
    }

    @Test(arguments: [true, false])
    func `an idle pipe that loses its reader ends with EPIPE`(_ isLostBefore: Bool) throws {
        try inManualTime { loop, _, trace in
            let (file, reader) = SharedFile.writingEnd.open()
            if isLostBefore { close(reader) }
            let stream = try ByteStream(adopting: file, on: loop)
            stream.onEnd { _, end in trace.add("\(end == .failed(.system(operation: "write", errno: EPIPE)))") }
            if !isLostBefore {
                _ = loop.run(for: .zero)
                #expect(stream.isOpen)
                close(reader)
            }
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["true"])
        }
    }

    @Test func `a message in the error queue of a socket does not make the loop spin`() throws {
        try inManualTime { loop, _, trace in
            let (ours, peer) = tcpPair()
            defer { close(peer) }
            // SO_TIMESTAMPING: a message for each packet that leaves (software, with the transmission and the acknowledgement).
            var flags: Int32 = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9
            precondition(setsockopt(ours, SOL_SOCKET, 37, &flags, socklen_t(MemoryLayout<Int32>.size)) == 0)
            let stream = try ByteStream(adopting: ours, on: loop)
            stream.onReceive { _, bytes in bytes.consume(bytes.count) }
            stream.send("stamped")
            var entry = pollfd(fd: ours, events: 0, revents: 0)
            precondition(poll(&entry, 1, 10_000) == 1 && Int32(entry.revents) & POLLERR != 0, "a message is there")
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(poll(&entry, 1, 0) == 0, "nothing is left that would make the socket ready")
            #expect(stream.isOpen)
            stream.close()
        }
    }

    @Test func `a named pipe whose writer has gone ends like any other`() throws {
        let directory = makeTemporaryDirectory()
        defer { removeFlatDirectory(directory) }
        try inManualTime { loop, _, trace in
            let path = directory + "/pipe"
            precondition(mkfifo(path, 0o600) == 0)
            let reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
            let writer = open(path, O_WRONLY | O_CLOEXEC)
            precondition(write(writer, "last", 4) == 4)
            close(writer)
            let stream = try ByteStream(adopting: reader, on: loop)
            stream.onReceive { _, bytes in trace.add("\(bytes.take(bytes.count).count) \(bytes.isLast)") }
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["4 false", "0 true"])
        }
    }
}
#endif
