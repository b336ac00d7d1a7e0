// The code of docs/streams.md and docs/stream-reference.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in these pages with this file, line by line: change both.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import EventLoopTesting
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

// MARK: A server and a client

/// Answers each line.
func startServer(on loop: RunLoop) throws -> StreamServer {
    try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop], connectionLimit: 1_000) { stream in
        do {
            for try await line in stream.lines(limit: 1_000) { try await stream.write("you said \(line)\n") }
        } catch {
            print("a client is gone: \(error)")
        }
    }
}

/// Sends one line, and returns the answers until the server ends the connection.
func ask(_ question: String, port: UInt16, on loop: RunLoop) async throws -> [String] {
    let stream = try await ByteStream.connect(host: "localhost", port: port, on: loop)
    defer { stream.close() }
    try await stream.write(question + "\n")
    try await stream.finishWriting()
    var answers: [String] = []
    for try await line in stream.lines() { answers.append(line) }
    return answers
}

// MARK: Handlers

/// Serves a connection that a `RunLoop.SocketSource` has accepted. On the loop's thread.
func serve(_ descriptor: Int32, on loop: RunLoop) throws {
    let stream = try ByteStream(adopting: descriptor, on: loop)
    stream.onReceive { stream, bytes in
        while let line = bytes.takeLine() {
            if !stream.send("you said \(line)\n") { stream.isReading = false }
        }
        if bytes.count > 1_000 { stream.close() }  // nobody sends such a line
    }
    stream.onRoom { stream in stream.isReading = true }
    stream.onEnd { _, end in print("a client is gone: \(end)") }
}

private final class Counter {
    var count = 0
}

/// Counts the bytes and the lines of a stream, and looks at each byte in place.
func count(_ stream: ByteStream, _ report: @escaping @Sendable (_ bytes: UInt64, _ lines: Int) -> Void) {
    let lines = LoopBound(Counter())  // handlers run on the loop's thread
    stream.onReceive { stream, bytes in
        bytes.withUnsafeBytes { lines.value.count += $0.count { $0 == UInt8(ascii: "\n") } }
        let isLast = bytes.isLast
        bytes.consume(bytes.count)
        if isLast { report(stream.bytesReceived, lines.value.count) }
    }
}

// MARK: Back-pressure

/// Passes bytes on, at the speed of the slower side, with at most 64 KiB read ahead and 64 KiB waiting.
func copy(from source: ByteStream, to target: ByteStream) async throws {
    while let bytes = try await source.read() { try await target.write(bytes) }
    try await target.finishWriting()
}

/// The same as `copy`; called for both directions, this is a proxy. Both streams are on one loop, and this is called on its thread.
func pass(from source: ByteStream, to target: ByteStream) {
    source.onReceive { source, bytes in
        let isLast = bytes.isLast
        if !target.send(bytes.take(bytes.count)) { source.isReading = false }
        if isLast { target.finishSending() }
    }
    target.onRoom { _ in source.isReading = true }
    target.onEnd { _, _ in source.closeAfterWriting() }
}

/// Pieces of data, for any thread.
final class Pieces: Sendable {
    private let left: Locked<[[UInt8]]>
    init(_ pieces: [[UInt8]]) { left = Locked(pieces.reversed()) }
    func next() -> [UInt8]? { left.withLock { $0.popLast() } }
}

/// Sends pieces as fast as the peer takes them, and ends the stream after the last.
func sendAll(_ pieces: Pieces, to stream: ByteStream) {
    let sendSome: @Sendable (ByteStream) -> Void = { stream in
        while let piece = pieces.next() {
            if !stream.send(piece) { return }  // `onRoom` goes on
        }
        stream.closeAfterWriting()
    }
    stream.onRoom(sendSome)
    sendSome(stream)
}

/// A member for whom 64 KiB are waiting is disconnected. Nobody waits. Returns those who were too slow.
func announce(_ text: String, to members: [ByteStream]) -> [ByteStream] {
    var tooSlow: [ByteStream] = []
    for member in members where !member.send(text) {
        if member.bytesWaiting > 0 { tooSlow.append(member) }  // otherwise it has ended already
        member.close()
    }
    return tooSlow
}

// MARK: Messages

/// A byte for the kind and a byte for the value.
struct Command: Sendable, Equatable {
    var kind: UInt8
    var value: UInt8
}

struct CommandFraming: StreamFraming {
    mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> Command? {
        guard bytes.count >= 2 else { return nil }  // more must come
        let pair = bytes.take(2)
        return Command(kind: pair[0], value: pair[1])
    }
}

/// All commands that have come completely, as one message.
struct BatchFraming: StreamFraming {
    mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> [Command]? {
        let count = bytes.count / 2
        guard count > 0 else { return nil }  // more must come
        let pairs = bytes.take(2 * count)
        return (0..<count).map { Command(kind: pairs[2 * $0], value: pairs[2 * $0 + 1]) }
    }
}

/// Answers each command with its value, in the order in which the commands came.
func answer(_ stream: ByteStream) async throws {
    for try await commands in stream.frames(BatchFraming()) {
        try await stream.write(commands.map(\.value))
    }
}

func run(_ stream: ByteStream, _ obey: (Command) -> Void) async throws {
    for try await command in stream.frames(CommandFraming()) { obey(command) }
}

func commands(in bytes: [UInt8]) throws -> [Command] {
    var framing = CommandFraming()
    var received = ReceivedBytes(bytes, isLast: true)
    var found: [Command] = []
    while let command = try framing.next(in: &received, isLast: true) { found.append(command) }
    return found
}

/// The header lines, and as many bytes as they announce.
func readMessage(from stream: ByteStream) async throws -> (head: [String], body: [UInt8]) {
    var head: [String] = []
    while let line = try await stream.readLine(limit: 8_192), !line.isEmpty { head.append(line) }
    let length = head.first { $0.hasPrefix("Content-Length: ") }.flatMap { Int($0.dropFirst(16)) } ?? 0
    guard (0...1_000_000).contains(length) else { throw StreamError.frameTooLong(limit: 1_000_000) }
    return (head, try await stream.read(exactly: length))
}

// MARK: Servers, and tests

/// A public server, with limits for each connection.
func startLimitedServer(on loop: RunLoop) throws -> StreamServer {
    var options = ByteStream.Options()
    options.idleTimeout = .seconds(60)
    options.writeTimeout = .seconds(10)
    return try StreamServer(
        listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop], options: options, connectionLimit: 1_000
    ) { stream in
        try? await stream.write("hello\n")
    }
}

/// Ends a server whose clients would stay. `clients` are the streams that its closure serves.
func shutDown(_ server: StreamServer, _ clients: [ByteStream]) async {
    async let done: Void = server.shutdown(grace: .seconds(2))
    for client in clients {
        client.send("the server ends\n")
        client.closeAfterWriting()
    }
    await done
}

func serveUntilStopped(on loops: [RunLoop]) async throws {
    // Signals are counted from here on, so this comes before the server.
    var terminations = loops[0].signals(SIGTERM).makeAsyncIterator()
    let server = try StreamServer(listeningOn: .ipv6(host: "::", port: 0), on: loops, connectionLimit: 10_000) { stream in
        do {
            for try await line in stream.lines(limit: 1_000) { try await stream.write(line + "\n") }
        } catch {
            if !Task.isCancelled { print("a client is gone: \(error)") }
        }
    }
    _ = try await terminations.next()
    await server.shutdown(grace: .seconds(5))
}

/// What the server does with "one\ntwo\n", in pieces of random lengths.
func answers(seed: UInt64, on loop: RunLoop) async throws -> [String] {
    let pair = try ByteStream.pair(on: loop, seed: seed)
    let server = Task { for try await line in pair.second.lines() { try await pair.second.write("you said \(line)\n") } }
    try await pair.first.write("one\ntwo\n")
    try await pair.first.finishWriting()
    try await server.value
    pair.second.closeAfterWriting()
    var answers: [String] = []
    for try await line in pair.first.lines() { answers.append(line) }
    return answers
}

@Suite(.bounded) struct DocumentedStreams {
    @Test func `a server answers a client's line, and shuts down`() async throws {
        try await withTestLoop { loop in
            let server = try startServer(on: loop)
            guard case .ipv4(_, let port) = server.localAddress else { throw StreamError.closed }
            #expect(try await ask("hello", port: port, on: loop) == ["you said hello"])
            await server.shutdown()
            #expect(server.connections == 0)
        }
    }

    @Test func `a server with options of its own serves a client`() async throws {
        try await withTestLoop { loop in
            let server = try startLimitedServer(on: loop)
            let client = try await ByteStream.connect(to: server.localAddress, on: loop)
            #expect(try await client.readLine() == "hello")
            #expect(try await client.readLine() == nil)
            client.close()
            await server.shutdown()
        }
    }

    // Nobody moves the clock, so the grace never passes.
    @Test(.runLoop(.manualTime)) func `a server that says goodbye ends before the grace`() async throws {
        let loop = RunLoop.ofTest
        let streams = Box<[ByteStream]>([])
        let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop]) { stream in
            streams.change { $0.append(stream) }
            while (try? await stream.readLine()) ?? nil != nil {}  // ends: with the connection
        }
        let client = try await ByteStream.connect(to: server.localAddress, on: loop)
        try await suspendUntil("the client is served") { streams.value.count == 1 }
        let reading = Task {
            defer { client.close() }
            var lines: [String] = []
            for try await line in client.lines() { lines.append(line) }
            return lines
        }
        await shutDown(server, streams.value)
        #expect(try await reading.value == ["the server ends"])
    }

    @Test func `a pair of descriptors may be files, and one descriptor may not`() async throws {
        try await withTestLoop { loop in
            let input = try ByteStream(reading: open("/dev/null", O_RDONLY), writing: open("/dev/null", O_WRONLY), on: loop)
            try await input.write("nobody reads this\n")
            #expect(try await input.read() == nil)
            let null = open("/dev/null", O_RDWR)
            #expect(throws: RunLoop.SourceError.notPollable(null)) { try ByteStream(adopting: null, on: loop) }
        }
    }

    @Test func `handlers answer lines, and close a connection whose line is too long`() async throws {
        try await withTestLoop { loop in
            let sockets = SocketPair()
            try serve(sockets.ours, on: loop)
            let peer = try ByteStream(adopting: dup(sockets.peer), on: loop)
            sockets.closePeer()
            var lines = peer.lines().makeAsyncIterator()
            try await peer.write("one\ntwo\n")
            #expect(try await lines.next(isolation: nil) == "you said one")
            #expect(try await lines.next(isolation: nil) == "you said two")
            try await peer.write(String(repeating: "x", count: 1_001))
            // The server closes with unread bytes, which may be a reset.
            #expect((try? await peer.read()) ?? nil == nil)
        }
    }

    @Test func `bytes and lines are counted in place`() async throws {
        try await withTestLoop { loop in
            let pair = try ByteStream.pair(on: loop, seed: 1)
            let counted = Box<[Int]?>(nil)
            loop.perform { count(pair.second) { counted.value = [Int($0), $1] } }
            try await pair.first.write("one\ntwo\nthree")
            try await pair.first.finishWriting()
            try await suspendUntil("the end is reported") { counted.value != nil }
            #expect(counted.value == [13, 2])
        }
    }

    @Test(arguments: [false, true])
    func `bytes are passed on at the speed of the slower side, and none is lost`(withHandlers: Bool) async throws {
        try await withTestLoop { loop in
            let (left, right) = (try ByteStream.pair(on: loop, seed: 2), try ByteStream.pair(on: loop, seed: 3))
            let bytes = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 % 251) }
            right.hold(.firstToSecond)
            if withHandlers {
                loop.perform { pass(from: left.second, to: right.first) }
            } else {
                Task { try await copy(from: left.second, to: right.first) }
            }
            let isSent = Box(false)
            let sending = Task {
                try await left.first.write(bytes)
                try await left.first.finishWriting()
                isSent.value = true
            }
            try await suspendUntil("the streams are full") { right.first.bytesWaiting >= 65_536 }
            #expect(!isSent.value)
            right.resume(.firstToSecond)
            var received: [UInt8] = []
            while let piece = try await right.second.read() { received += piece }  // ends: with the stream
            #expect(received == bytes)
            try await sending.value
        }
    }

    @Test func `everything is sent as room comes`() async throws {
        try await withTestLoop { loop in
            let pair = try ByteStream.pair(on: loop, seed: 4)
            let pieces = (0..<100).map { [UInt8](repeating: UInt8($0), count: 10_000) }
            loop.perform { sendAll(Pieces(pieces), to: pair.first) }
            #expect(try await pair.second.read(exactly: 1_000_000) == pieces.flatMap { $0 })
            #expect(try await pair.second.read() == nil)
        }
    }

    @Test func `a member who does not read is disconnected`() async throws {
        try await withTestLoop { loop in
            let (reading, lazy) = (try ByteStream.pair(on: loop), try ByteStream.pair(on: loop))
            lazy.hold(.firstToSecond)
            let text = String(repeating: "x", count: 999) + "\n"
            var lines = reading.second.lines().makeAsyncIterator()
            var tooSlow: [ByteStream] = []
            for _ in 0..<200 {
                tooSlow += announce(text, to: [reading.first, lazy.first])
                #expect(try await lines.next(isolation: nil)?.count == 999)
            }
            // Once. After that, it has ended.
            #expect(tooSlow == [lazy.first])
            #expect(lazy.first.end == .closed)
            #expect(reading.first.isOpen)
        }
    }

    @Test func `a framing of one's own cuts a stream, and is tested without one`() async throws {
        let two = [Command(kind: 1, value: 2), Command(kind: 3, value: 4)]
        #expect(try commands(in: [1, 2, 3, 4, 5]) == two)
        try await withTestLoop { loop in
            let pair = try ByteStream.pair(on: loop, seed: 5)
            try await pair.first.write([1, 2, 3, 4])
            try await pair.first.finishWriting()
            var found: [Command] = []
            try await run(pair.second) { found.append($0) }
            #expect(found == two)
        }
    }

    @Test(.runLoop(.manualTime(autoAdvance: true)), arguments: 0..<10 as Range<UInt64>)
    func `what has come completely is answered, in its order, however it arrives`(seed: UInt64) async throws {
        let pair = try ByteStream.pair(on: .ofTest, seed: seed)
        let server = Task { try await answer(pair.second) }
        let values = [UInt8](0..<200)
        try await pair.first.write(values.flatMap { [0, $0] })
        #expect(try await pair.first.read(exactly: 200) == values)
        try await pair.first.finishWriting()
        try await server.value
    }

    @Test func `a head of lines and a body of bytes are read one after the other`() async throws {
        try await withTestLoop { loop in
            let pair = try ByteStream.pair(on: loop, seed: 6)
            try await pair.first.write("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello, and more")
            let message = try await readMessage(from: pair.second)
            #expect(message.head == ["POST / HTTP/1.1", "Content-Length: 5"])
            #expect(String(decoding: message.body, as: UTF8.self) == "hello")
        }
    }

    @Test func `a signal ends a server`() async {
        await #expect(processExitsWith: .success) {
            try await withTestLoop { loop in
                let serving = Task { try await serveUntilStopped(on: [loop]) }
                try await suspendUntil("the task watches SIGTERM") { loop.debugDescription.contains("signal \(SIGTERM)") }
                // The threads that run tests block signals.
                try plainThread {
                    var signals = sigset_t()
                    sigemptyset(&signals)
                    sigaddset(&signals, SIGTERM)
                    pthread_sigmask(SIG_UNBLOCK, &signals, nil)
                    raise(SIGTERM)
                }.join()
                try await serving.value
            }
        }
    }

    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `the answers do not depend on how the bytes are split`(seed: UInt64) async throws {
        try await withTestLoop { loop in
            let received = try await answers(seed: seed, on: loop)
            #expect(received == ["you said one", "you said two"])
        }
    }
}
