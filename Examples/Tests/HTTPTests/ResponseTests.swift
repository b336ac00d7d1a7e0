// Rules proved here (docs/http.md): what a client gets of a response.
// - HEAD, 204, 205 and 304 have no body. What a handler says of the length and of the connection is replaced by what is true.
// - Nothing that a handler puts into a field splits the response. A 1xx status is a 500 and a warning, and so is an error.
// - Files arrive whole, and a missing one is a 404. Sequences arrive in chunks, and wait for a slow client.

import EventLoop
import HTTPTypes
import Synchronization
import TestSupport
import Testing

@testable import EventLoopHTTP

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct ResponseTests {
    @Test func `an answer has its length, a date, and what the handler has set`() async throws {
        let respond: @Sendable (Request) async throws -> Response = { _ in
            var response = Response.text("hello", status: .created)
            response.head.headerFields[.setCookie] = "a=b"
            response.head.headerFields[.contentLength] = "99"
            response.head.headerFields[.transferEncoding] = "chunked"
            response.head.headerFields[.connection] = "upgrade"
            response.head.headerFields[HTTPField.Name("Keep-Alive")!] = "timeout=99"
            return response
        }
        try await withServer(respond: respond) { server in
            let answer = try Client(server).ask(get())
            #expect(answer.status == 201 && answer.reason == "Created" && answer.text == "hello")
            #expect(
                answer["content-length"] == "5" && answer["set-cookie"] == "a=b" && answer["content-type"] == "text/plain; charset=utf-8")
            #expect(answer["transfer-encoding"] == nil && answer["connection"] == nil && answer["keep-alive"] == nil)
            let date = try #require(answer["date"])
            #expect(date.wholeMatch(of: /(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z][a-z] \d{4} \d\d:\d\d:\d\d GMT/) != nil, "\(date)")
        }
    }

    @Test func `HEAD, 204, 205 and 304 have no body, and the connection goes on`() async throws {
        let elements = Box(0)
        let respond: @Sendable (Request) async throws -> Response = { request in
            switch request.path {
            case "/204": return Response(status: .noContent, body: .bytes([1, 2, 3]))
            case "/205": return Response(status: .resetContent, body: .bytes([1, 2, 3]))
            case "/304": return Response(status: .notModified, body: .bytes([1, 2, 3]))
            case "/sequence":
                return Response(
                    body: .sequence(
                        AsyncThrowingStream {
                            elements.change { $0 += 1 }
                            return elements.value < 3 ? [1] : nil
                        }))
            case "/own-date": return Response(headerFields: [.date: "today"])
            default: return .text("four")
            }
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            let head = try client.ask("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n", isHead: true)
            #expect(head.status == 200 && head["content-length"] == "4")
            #expect(try client.ask("HEAD /sequence HTTP/1.1\r\nHost: t\r\n\r\n", isHead: true)["content-length"] == nil)
            #expect(elements.value == 0)
            for status in [204, 304] {
                let answer = try client.ask(get("/\(status)"))
                #expect(answer.status == status && answer["content-length"] == nil)
            }
            let reset = try client.ask(get("/205"))
            #expect(reset.status == 205 && reset["content-length"] == "0")
            #expect(try client.ask(get("/own-date")).fields.filter { $0.name == "date" }.map(\.value) == ["today"])
            #expect(try client.ask(get()).text == "four")
        }
    }

    @Test func `no field splits a response`() async throws {
        let respond: @Sendable (Request) async throws -> Response = { request in
            var response = Response.text("x")
            response.head.headerFields[.location] = "/a\r\nSet-Cookie: evil\u{0}\n"
            response.head.status = .init(code: 200, reasonPhrase: "fine\r\nSet-Cookie: evil")
            return response
        }
        try await withServer(respond: respond) { server in
            let answer = try Client(server).ask(get())
            #expect(answer["set-cookie"] == nil && answer.text == "x")
        }
    }

    // MARK: Failures

    private struct Mistake: Error {}

    @Test func `an error is a 500 and a warning, and so is a status that is not final`() async throws {
        HeardWarnings.begin()
        let respond: @Sendable (Request) async throws -> Response = { request in
            switch request.path {
            case "/mistakes/throws": throw Mistake()
            case "/mistakes/100": return Response(status: .continue)
            case "/mistakes/0": return Response(status: 0)
            default: return .text("fine")
            }
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            for path in ["/mistakes/throws", "/mistakes/100", "/mistakes/0", "/mistakes/throws"] {
                #expect(try client.ask("POST \(path) HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx").status == 500)
                #expect(try client.ask(get()).text == "fine")
            }
            let heard = HeardWarnings.messages(about: "/mistakes/")
            #expect(heard.count == 4 && heard.allSatisfy { $0.kind == .failedRequest })
            #expect(heard.first?.message == "the handler of POST /mistakes/throws threw Mistake()")
            #expect(heard.first?.createdAt?.contains("HTTPTestSupport.swift") == true)
        }
    }

    // MARK: Files

    private func write(_ bytes: [UInt8], to path: String) {
        let descriptor = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0o600)
        var rest = bytes[...]
        while !rest.isEmpty {  // ends: each turn writes something
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            precondition(count > 0, "write: errno \(errno)")
            rest = rest.dropFirst(count)
        }
        close(descriptor)
    }

    @Test func `files arrive whole, small and large, and HEAD has their length`() async throws {
        let large = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 7 >> 2) }
        try await withFolder { folder in
            write(Array("small".utf8), to: folder + "/small.html")
            write([], to: folder + "/empty")
            write(large, to: folder + "/large")
            let respond: @Sendable (Request) async throws -> Response = { Response(body: .file(path: folder + $0.path)) }
            try await withServer(respond: respond) { server in
                let client = try Client(server, receiveBuffer: 8_192)
                let small = try client.ask(get("/small.html"))
                #expect(small.text == "small" && small["content-type"] == "text/html; charset=utf-8")
                #expect(try client.ask(get("/empty")).body.isEmpty)
                let answer = try client.ask(get("/large"))
                #expect(answer.body == large && answer["content-length"] == "3000000")
                #expect(try client.ask("HEAD /large HTTP/1.1\r\nHost: t\r\n\r\n", isHead: true)["content-length"] == "3000000")
                #expect(try client.ask(get("/small.html")).text == "small")
            }
        }
    }

    #if os(Linux)
    @Test func `the kernel sends a large file, also behind another answer`() async throws {
        let large = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 5 >> 1) }
        try await withFolder { folder in
            write(large, to: folder + "/large")
            let respond: @Sendable (Request) async throws -> Response = {
                $0.path == "/large" ? Response(body: .file(path: folder + "/large")) : .text("small")
            }
            try await withServer(respond: respond) { server in
                let client = try Client(server)
                #expect(try client.ask(get("/large")).body == large)
                #expect(server.core.testsOnlyKernelBytes.load(ordering: .relaxed) == 3_000_000)
                try client.send(get() + get("/large") + get())
                #expect(try client.answer().text == "small")
                #expect(try client.answer().body == large)
                #expect(try client.answer().text == "small")
                #expect(server.core.testsOnlyKernelBytes.load(ordering: .relaxed) == 6_000_000)
            }
        }
    }

    /// A file that says it has 4,096 bytes, and has a few.
    private static let shortFile = "/sys/devices/system/cpu/online"

    @Test(.enabled(if: access(shortFile, R_OK) == 0, "there is no /sys"))
    func `a small file that cannot be read is a 500 and a warning, and the connection goes on`() async throws {
        HeardWarnings.begin()
        let respond: @Sendable (Request) async throws -> Response = {
            $0.path == "/unreadable" ? Response(body: .file(path: Self.shortFile)) : .text("fine")
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            #expect(try client.ask(get("/unreadable")).status == 500)
            #expect(try client.ask(get()).text == "fine")
            #expect(HeardWarnings.messages(about: "/unreadable").map(\.kind) == [.failedRequest])
        }
    }
    #endif

    @Test func `a client that goes in the middle of a file, or takes none of it, ends its connection`() async throws {
        var options = HTTPServer.Options()
        options.idleTimeout = .milliseconds(300)
        let clock = RunLoop.ManualClock()
        try await withFolder { folder in
            write([UInt8](repeating: 1, count: 30_000_000), to: folder + "/large")
            let respond: @Sendable (Request) async throws -> Response = { _ in Response(body: .file(path: folder + "/large")) }
            try await withServer(options: options, clock: clock, respond: respond) { server in
                let (gone, slow) = (try Client(server, receiveBuffer: 8_192), try Client(server, receiveBuffer: 8_192))
                for client in [gone, slow] {
                    try client.send(get())
                    try client.receive()
                }
                gone.reset()
                try waitUntil("both connections end") {
                    if server.core.hosts[0].loop.isWaiting { clock.advance(by: .milliseconds(100)) }
                    return server.connections == 0
                }
            }
        }
    }

    /// The kernel reports room only when a third of its buffer is free, and for this client that takes longer than the timeout.
    @Test func `a slow client that takes some of a file again and again gets all of it`() async throws {
        let large = (0..<4_000_000).map { UInt8(truncatingIfNeeded: $0 &* 3 >> 2) }
        var options = HTTPServer.Options()
        options.idleTimeout = .seconds(1)
        let clock = RunLoop.ManualClock()
        try await withFolder { folder in
            write(large, to: folder + "/large")
            let respond: @Sendable (Request) async throws -> Response = { _ in Response(body: .file(path: folder + "/large")) }
            try await withServer(options: options, clock: clock, respond: respond) { server in
                let client = try Client(server, receiveBuffer: 8_192)
                try client.send(get())
                for _ in 0..<25 {
                    try client.receive(atLeast: 30_000)
                    clock.advance(by: .milliseconds(100))
                }
                #expect(try client.answer().body == large)
            }
        }
    }

    @Test func `what is no file is a 404`() async throws {
        try await withFolder { folder in
            mkfifo(folder + "/fifo", 0o600)
            let respond: @Sendable (Request) async throws -> Response = { Response(body: .file(path: folder + $0.path)) }
            try await withServer(respond: respond) { server in
                let client = try Client(server)
                for path in ["/missing", "/", "/fifo", "/missing/below", "/" + String(repeating: "n", count: 300)] {
                    #expect(try client.ask(get(path)).status == 404, "\(path)")
                }
            }
            try await withServer(respond: { _ in Response(body: .file(path: folder + "/fifo\u{0}.html")) }) { server in
                let answer = try Client(server).ask(get())
                #expect(answer.status == 404)
            }
        }
    }

    // MARK: Sequences

    /// Counts what the server has asked for.
    private static func numbers(upTo count: Int, of size: Int, asked: Box<Int>) -> Response {
        Response(
            body: .sequence(
                AsyncThrowingStream {
                    let number = asked.change { asked in
                        asked += 1
                        return asked
                    }
                    return number > count ? nil : [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: size)
                }))
    }

    @Test func `a sequence arrives in chunks, and with HTTP 1.0 up to the end`() async throws {
        let respond: @Sendable (Request) async throws -> Response = { request in
            Self.numbers(upTo: 300, of: request.path == "/large" ? 20_000 : 10, asked: Box(0))
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            for (path, size) in [("/", 10), ("/large", 20_000)] {
                let expected = (1...300).flatMap { [UInt8](repeating: UInt8(truncatingIfNeeded: $0), count: size) }
                let answer = try client.ask(get(path))
                #expect(answer.isChunked && answer["content-length"] == nil && answer.body == expected)
                let old = try Client(server).ask("GET \(path) HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                #expect(!old.isChunked && old["connection"] == "close" && old.body == expected)
            }
        }
    }

    @Test func `an empty element does not end a sequence`() async throws {
        let respond: @Sendable (Request) async throws -> Response = { _ in
            let (stream, continuation) = AsyncThrowingStream<[UInt8], any Error>.makeStream()
            for element in [[1], [], [2]] as [[UInt8]] { continuation.yield(element) }
            continuation.finish()
            return Response(body: .sequence(stream))
        }
        try await withServer(respond: respond) { server in
            let answer = try Client(server).ask(get())
            #expect(answer.body == [1, 2])
        }
    }

    @Test func `a sequence waits for a client that does not read`() async throws {
        let asked = Box(0)
        try await withServer(respond: { _ in Self.numbers(upTo: 2_000, of: 20_000, asked: asked) }) { server in
            let client = try Client(server, receiveBuffer: 8_192)
            try client.send(get())
            // Fills the kernel's buffers and the stream's, and no more.
            var before = -1
            try waitUntil("the sequence is not asked any more") {
                defer { before = asked.value }
                usleep(50_000)
                return before > 0 && asked.value == before
            }
            #expect(asked.value < 1_000)
            #expect(try client.answer().body.count == 2_000 * 20_000)
            #expect(asked.value == 2_001)
        }
    }

    @Test func `a sequence that fails cuts the connection`() async throws {
        HeardWarnings.begin()
        let respond: @Sendable (Request) async throws -> Response = { _ in
            let (stream, continuation) = AsyncThrowingStream<[UInt8], any Error>.makeStream()
            continuation.yield([1])
            continuation.finish(throwing: Mistake())
            return Response(body: .sequence(stream))
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            #expect(throws: ClientError.self) { try client.ask(get("/cut")) }
            let heard = HeardWarnings.messages(about: "/cut")
            #expect(heard.map(\.message) == ["the answer to GET /cut ends early: Mistake()"])
        }
    }

    @Test func `with HTTP 1.0, a sequence that fails resets the connection, and one that ends does not`() async throws {
        let respond: @Sendable (Request) async throws -> Response = { request in
            let (stream, continuation) = AsyncThrowingStream<[UInt8], any Error>.makeStream()
            continuation.yield([1])
            continuation.finish(throwing: request.path == "/fails" ? Mistake() : nil)
            return Response(body: .sequence(stream))
        }
        try await withServer(respond: respond) { server in
            let fails = try Client(server)
            try fails.send("GET /fails HTTP/1.0\r\n\r\n")
            let error = #expect(throws: ClientError.self) { while try fails.receive() {} }
            #expect(error?.description == "recv: errno \(ECONNRESET)")
            let ends = try Client(server)
            try ends.send("GET /ends HTTP/1.0\r\n\r\n")
            while try ends.receive() {}  // ends: with the connection; a reset is thrown
            #expect(try ends.rest().last == 1)
        }
    }

    @Test func `answers wait for a client that asks and does not read`() async throws {
        let answered = Box(0)
        let respond: @Sendable (Request) async throws -> Response = { _ in
            answered.change { $0 += 1 }
            return Response(body: .bytes([UInt8](repeating: 7, count: 100_000)))
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server, receiveBuffer: 8_192)
            try client.send((0..<300).map { _ in get() }.joined())
            var before = -1
            try waitUntil("no further request is handled") {
                defer { before = answered.value }
                usleep(50_000)
                return before > 0 && answered.value == before
            }
            #expect(answered.value < 150)
            for _ in 0..<300 { #expect(try client.answer().body.count == 100_000) }
        }
    }
}
