// Rules proved here (docs/http.md): what a handler gets of a request.
// - Method, target, fields and body arrive as they were sent, in one piece or byte by byte, with a length or in chunks.
// - Unknown methods reach the handler. Absolute targets keep their path. A query is decoded, bad escapes are not.
// - One request after another on a connection: keep-alive, pipelining, HTTP/1.0.

import EventLoop
import EventLoopHTTP
import HTTPTypes
import TestSupport
import Testing

@Suite(.bounded) struct RequestTests {
    /// Says what the handler has got.
    private static let describe: @Sendable (Request) async throws -> Response = { request in
        let fields = request.head.headerFields.map { "\($0.name.rawName)=\($0.value)" }.joined(separator: "|")
        let query = request.query.map { "\($0.name)=\($0.value)" }.joined(separator: "&")
        let body = String(decoding: request.body, as: UTF8.self)
        return .text("\(request.head.method) \(request.path) [\(query)] \(request.head.authority ?? "-") {\(fields)} \(body)")
    }

    private func check(_ requests: [(sent: String, seen: String)]) async throws {
        let (sent, seen) = (requests.map(\.sent), requests.map(\.seen))
        try await withServer(respond: Self.describe) { server in
            let client = try Client(server)
            for (sent, seen) in zip(sent, seen) {
                let answer = try client.ask(sent)
                #expect(answer.status == 200)
                #expect(answer.text == seen)
            }
        }
    }

    @Test func `method, target, fields and body arrive as they were sent`() async throws {
        try await check([
            (get(), "GET / [] test {} "),
            (get("/a%2Fb?x=1&y=%C3%BC+z", "X-One: 1\r\nx-two:\t two words \r\n"), "GET /a%2Fb [x=1&y=ü z] test {X-One=1|x-two=two words} "),
            ("POST /p HTTP/1.1\r\nHost: h:80\r\nContent-Length: 5\r\n\r\nhello", "POST /p [] h:80 {Content-Length=5} hello"),
            ("BREW /pot HTTP/1.1\r\nHost: [::1]:8\r\n\r\n", "BREW /pot [] [::1]:8 {} "),
            ("GET http://other:81/x?y HTTP/1.1\r\nHost: test\r\n\r\n", "GET /x [y=] other:81 {} "),
            ("GET http://other HTTP/1.1\r\nHost: test\r\n\r\n", "GET / [] other {} "),
            ("GET http://other?q HTTP/1.1\r\nHost: test\r\n\r\n", "GET / [q=] other {} "),
            ("OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n", "OPTIONS * [] test {} "),
            (get("/ü"), "GET /ü [] test {} "),
            ("\r\n" + get("/behind-an-empty-line"), "GET /behind-an-empty-line [] test {} "),
            ("GET / HTTP/1.7\r\nHost:\r\n\r\n", "GET / []  {} "),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / [] - {Connection=Keep-Alive} "),
        ])
    }

    @Test(arguments: [
        ("a=b", "a=b"), ("", ""), ("&&a", "a="), ("a=b=c&", "a=b=c"), ("%41=%e4%b8%ad", "A=中"), ("a=%", "a=%"), ("a=%4", "a=%4"),
        ("a=%zz", "a=%zz"), ("a=%ff", "a=\u{FFFD}"), ("a+b=c+d", "a b=c d"), ("a=%2B", "a=+"), ("=v", "=v"), ("a?b", "a?b="),
        ("a=%00", "a=\0"), ("x=%%41", "x=%A"),
    ])
    func `a query is decoded, and bad escapes are not`(query: String, decoded: String) {
        let request = Request(head: HTTPRequest(method: .get, scheme: nil, authority: nil, path: "/p?" + query))
        #expect(request.query.map { "\($0.name)=\($0.value)" }.joined(separator: "&") == decoded)
        #expect(request.path == "/p")
    }

    @Test func `chunks make one body, with extensions and trailers, also byte by byte`() async throws {
        let request =
            "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: Chunked\r\n\r\n5;name=\"v;\"\r\nhello\r\n0001 ; x\r\n \r\nA\r\n0123456789\r\n000\r\n"
            + "X-Trailer: dropped\r\n\r\n"
        try await withServer(respond: Self.describe) { server in
            let client = try Client(server)
            for isSlow in [false, true] {
                if isSlow { for byte in Array(request.utf8) { try client.send([byte]) } } else { try client.send(request) }
                #expect(try client.answer().text == "POST / [] test {Transfer-Encoding=Chunked} hello 0123456789")
            }
        }
    }

    @Test func `a body of the limit arrives, in any pieces`() async throws {
        var options = HTTPServer.Options()
        options.bodyLimit = 300_000
        let body = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }
        try await withServer(options: options, respond: { Response(body: .bytes($0.body)) }) { server in
            let client = try Client(server)
            try client.send("PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\n\r\n")
            try client.send(body)
            #expect(try client.answer().body == body)
            try client.send("PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
            for start in stride(from: 0, to: body.count, by: 10_000) {
                try client.send("2710\r\n")
                try client.send(Array(body[start..<start + 10_000]))
                try client.send("\r\n")
            }
            try client.send("0\r\n\r\n")
            #expect(try client.answer().body == body)
        }
    }

    @Test func `a head has no limit if the options say so`() async throws {
        var options = HTTPServer.Options()
        options.headLimit = .max
        let target = "/" + String(repeating: "a", count: 200_000)
        try await withServer(options: options, respond: { .text($0.path) }) { server in
            let answer = try Client(server).ask(get(target))
            #expect(answer.text == target)
        }
    }

    @Test func `the scheme is the connection's, whatever an absolute target says`() async throws {
        let respond: @Sendable (Request) async throws -> Response = { .text($0.head.scheme ?? "none") }
        for (isPrepared, scheme) in [(false, "http"), (true, "https")] {
            var options = HTTPServer.Options()
            if isPrepared { options.prepareConnection = { _ in } }
            try await withServer(options: options, respond: respond) { server in
                let client = try Client(server)
                for target in ["/", "http://h/", "https://h/"] { #expect(try client.ask(get(target)).text == scheme, "\(target)") }
            }
        }
    }

    @Test func `the client's address comes with the request, and a Unix socket has none`() async throws {
        let respond: @Sendable (Request) async throws -> Response = { .text($0.peer.map { "\($0)" } ?? "none") }
        try await withServer(respond: respond) { server in
            let answer = try Client(server).ask(get())
            #expect(answer.text.hasPrefix("127.0.0.1:"))
        }
        try await withFolder { folder in
            try await withServer(address: .unix(path: folder + "/s"), respond: respond) { server in
                let answer = try Client(server).ask(get())
                #expect(answer.text == "none")
            }
        }
    }

    // MARK: One after another

    @Test func `pipelined requests are answered in their order, one at a time`() async throws {
        let running = Locked((now: 0, most: 0))
        let respond: @Sendable (Request) async throws -> Response = { request in
            running.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
            for _ in 0..<3 { await Task.yield() }
            running.withLock { $0.now -= 1 }
            return .text(request.path)
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            try client.send((0..<100).map { get("/\($0)") }.joined())
            for number in 0..<100 { #expect(try client.answer().text == "/\(number)") }
            #expect(running.withLock { $0.most } == 1)
        }
    }

    @Test(arguments: [
        ("GET / HTTP/1.1\r\nHost: t\r\n\r\n", nil), ("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", "close"),
        ("GET / HTTP/1.1\r\nHost: t\r\nConnection: x, CLOSE\r\n\r\n", "close"), ("GET / HTTP/1.0\r\n\r\n", "close"),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive"),
        ("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "close"),
        ("GET / HTTP/1.1\r\nHost: t\r\nConnection: closed\r\n\r\n", nil),
    ])
    func `a connection is kept as its version and the field Connection say`(request: String, connection: String?) async throws {
        try await withServer(respond: { _ in .text("x") }) { server in
            let client = try Client(server)
            #expect(try client.ask(request)["connection"] == connection)
            if connection == "close" {
                #expect(try client.isClosed())
            } else {
                #expect(try client.ask(get()).status == 200)
            }
        }
    }

    @Test func `a client that half-closes still gets its answers`() async throws {
        let respond: @Sendable (Request) async throws -> Response = { request in
            for _ in 0..<20 { await Task.yield() }
            return .text(request.path)
        }
        try await withServer(respond: respond) { server in
            let client = try Client(server)
            try client.send(get("/1") + get("/2") + get("/3"))
            client.finishSending()
            for number in 1...3 { #expect(try client.answer().text == "/\(number)") }
            #expect(try client.isClosed())
        }
    }

    /// The stream may read the client's end before the handler of received bytes has seen the last request: in one connection of many.
    @Test func `the last request before a half-close is answered, too`() async throws {
        try await withServer(respond: { .text($0.path) }) { server in
            for _ in 0..<300 {
                let client = try Client(server)
                try client.send(get("/1") + get("/2") + get("/3", "Connection: close\r\n"))
                client.finishSending()
                for number in 1...3 { #expect(try client.answer().text == "/\(number)") }
                #expect(try client.isClosed())
            }
        }
    }

    @Test func `Expect: 100-continue is answered before the body, and only if the client waits`() async throws {
        try await withServer(respond: { Response(body: .bytes($0.body)) }) { server in
            let client = try Client(server)
            let head = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n"
            #expect(try client.ask(head).status == 100)
            #expect(try client.ask("abc").text == "abc")
            // With the body on its way, nobody waits.
            #expect(try client.ask(head + "abc").text == "abc")
            #expect(
                try client.ask("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n").status == 100)
            #expect(try client.ask("1\r\nx\r\n0\r\n\r\n").text == "x")
            // HTTP/1.0 does not know it. The loop has read the head when it has answered a client that came later.
            let old = try Client(server)
            try old.send("POST / HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            _ = try Client(server).ask(get())
            #expect(try old.ask("abc").text == "abc")
            // Without a body there is nothing to wait for.
            #expect(try client.ask(get("/", "Expect: 100-continue\r\n")).status == 200)
        }
    }
}
