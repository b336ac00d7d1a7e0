// Rules proved here (docs/http.md): what the server refuses by itself, before a handler sees it.
// - Everything that two programs could read differently is 400, and the connection is closed: nothing behind it is a request.
// - Limits: 413, 414, 431. Codings and expectations that are unknown: 501, 417. Other versions: 505.
// - The parser says the same of a request in one piece and byte by byte.

import EventLoop
import HTTPTypes
import TestSupport
import Testing

@testable import EventLoopHTTP

/// A request that must not reach a handler. `H` stands for a valid field Host.
private struct Bad: Sendable, CustomTestStringConvertible {
    let text: String
    let status: Int
    init(_ text: String, _ status: Int = 400) { (self.text, self.status) = (text.replacing("H|", with: "Host: t\r\n"), status) }
    var testDescription: String { text.prefix(80).debugDescription }
}

private let smuggled = "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n"

/// A POST with these fields and this body.
private func post(_ fields: String, _ body: String = "0\r\n\r\n", _ status: Int = 400) -> Bad {
    Bad("POST / HTTP/1.1\r\nH|\(fields)\r\n\r\n\(body)", status)
}

private let badLines: [Bad] = [
    Bad("GET /\r\n"), Bad("GET  / HTTP/1.1\r\nH|\r\n"), Bad("GET /  HTTP/1.1\r\nH|\r\n"), Bad(" GET / HTTP/1.1\r\nH|\r\n"),
    Bad("GET\t/ HTTP/1.1\r\nH|\r\n"), Bad("GET / HTTP/1.1 \r\nH|\r\n"), Bad("GET / http/1.1\r\nH|\r\n"), Bad("GET / HTTP/1\r\nH|\r\n"),
    Bad("GET / HTTP/1.1x\r\nH|\r\n"), Bad("GET / HTTP/11.1\r\nH|\r\n"), Bad("GET / HTTP/1,1\r\nH|\r\n"), Bad("GET / HTTP/0.9\r\n\r\n"),
    Bad("G@T / HTTP/1.1\r\nH|\r\n"), Bad("GET /\u{0} HTTP/1.1\r\nH|\r\n"), Bad("GET /a b HTTP/1.1\r\nH|\r\n"),
    Bad("GET /\u{7F} HTTP/1.1\r\nH|\r\n"), Bad("GET /#f HTTP/1.1\r\nH|\r\n"), Bad("GET * HTTP/1.1\r\nH|\r\n"),
    Bad("GET test HTTP/1.1\r\nH|\r\n"), Bad("GET ftp://h/ HTTP/1.1\r\nH|\r\n"), Bad("GET http:///x HTTP/1.1\r\nH|\r\n"),
    Bad("GET http://a@b/ HTTP/1.1\r\nH|\r\n"), Bad("GET http://:80/ HTTP/1.1\r\nH|\r\n"), Bad("GET http://[]/ HTTP/1.1\r\nH|\r\n"),
    Bad("\u{16}\u{3}\u{1}\r\n"), Bad("\r\n\r\n\r\n\r\n\r\n\r\n"),
    Bad("GET / HTTP/2.0\r\nH|\r\n", 505),
    Bad("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505), Bad("GET / HTTP/9.9\r\nH|\r\n", 505),
    Bad("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", 501),
    Bad("\nGET / HTTP/1.1\r\nH|\r\n"), Bad("GET / HTTP/1.1\nHost: t\n\n"), Bad("GET / HTTP/1.1\r\r\nH|\r\n"),
    Bad("GET / HTTP/1.1\rHost: t\r\r\n"),
]

private let badFields: [Bad] = [
    Bad("GET / HTTP/1.1\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|H|\r\n"), Bad("GET / HTTP/1.0\r\nH|H|\r\n"),
    Bad("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"), Bad("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), Bad("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n"), Bad("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"), Bad("GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nHost: :80\r\n\r\n"), Bad("GET / HTTP/1.1\r\nHost: :\r\n\r\n"), Bad("GET / HTTP/1.1\r\nHost: []\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nHost: []:80\r\n\r\n"), Bad("GET / HTTP/1.1\r\nHost: [zz!]\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nHost : t\r\n\r\n"), Bad("GET / HTTP/1.1\r\n Host: t\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|X\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nH|: x\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|X: a\r\n b\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|X: a\r\n\tb\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nH|X: a\u{0}b\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|X: a\rb\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nH|X: a\nY: b\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nH|X: a\r\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|X Y: a\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|X\t: a\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nH|(X): a\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|ü: a\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|X: \u{7F}\r\n\r\n"),
    Bad("GET / HTTP/1.1\r\nH|X: \u{B}\r\n\r\n"), Bad("GET / HTTP/1.1\r\nH|Expect: tea\r\n\r\n", 417), Bad("GET / HTTP/1.1\r\nH|\n"),
]

private let badFramings: [Bad] = [
    post("Content-Length: 5\r\nTransfer-Encoding: chunked"), post("Transfer-Encoding: chunked\r\nContent-Length: 5"),
    post("Content-Length: 0\r\nTransfer-Encoding: chunked"), post("Content-Length: 5\r\nContent-Length: 6", "hello"),
    post("Content-Length: 5\r\nContent-Length: 5", "hello"), post("Content-Length: 5, 5", "hello"), post("Content-Length: 5,6", "hello"),
    post("Content-Length: +5", "hello"), post("Content-Length: -5", "hello"), post("Content-Length: 0x5", "hello"),
    post("Content-Length: 5 5", "hello"), post("Content-Length: 5a", "hello"), post("Content-Length:", "hello"),
    post("Content-Length: 5.0", "hello"), post("Content-Length : 5", "hello"), post(" Content-Length: 5", "hello"),
    post("X: y\r\n Content-Length: 5", "hello"), post("Content-Length\u{0}: 5", "hello"), post("Content-Length: 5\u{B}", "hello"),
    post("Content-Length: ５", "hello"), post("Content-Length: 9223372036854775808", "", 413),
    post("Content-Length: 99999999999999999999999999", "", 413), post("Content-Length: 2000000", "", 413),
    post("Transfer-Encoding: gzip", "", 501), post("Transfer-Encoding: gzip, chunked", "0\r\n\r\n", 501),
    post("Transfer-Encoding: xchunked", "0\r\n\r\n", 501), post("Transfer-Encoding: chunked, identity", "0\r\n\r\n", 501),
    post("Transfer-Encoding: identity", "", 501), post("Transfer-Encoding: \"chunked\"", "0\r\n\r\n", 501),
    post("Transfer-Encoding: chunked;q=1", "0\r\n\r\n", 501), post("Transfer-Encoding: chunked, chunked"),
    post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), post("Transfer-Encoding:"), post("Transfer-Encoding: ,chunked"),
    post("Transfer-Encoding: chunked,"), post("Transfer-Encoding : chunked"), post("Transfer-Encoding\t: chunked"),
    post(" Transfer-Encoding: chunked"), post("Transfer-Encoding:\u{B}chunked"), post("Transfer-Encoding: chunked\u{0}"),
    post("Transfer-Encoding:\r\n chunked"), post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "0\r\n\r\n", 501),
    post("X: y\rTransfer-Encoding: chunked"), post("X: y\nTransfer-Encoding: chunked"),
    Bad("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
]

private let badChunks: [Bad] =
    [
        "x\r\n", "\r\n", "-1\r\n", "+1\r\nx\r\n", "0x1\r\nx\r\n", " 1\r\nx\r\n", "1 \r\nx\r\n", "1\nx\n0\n\n", "1\r\nx\n0\r\n\r\n",
        "1\r\nxx\r\n0\r\n\r\n",
        "2\r\nx\r\n0\r\n\r\n", "1\rx\r\n", "1;a\nb\r\nx\r\n0\r\n\r\n", "1;\u{0}\r\nx\r\n", "1,1\r\nx\r\n", "1\u{0}\r\nx\r\n",
        "1\t\r\nx\r\n",
        "0\r\nX : y\r\n\r\n", "0\r\nX\r\n\r\n", "0\r\n X: y\r\n\r\n", "0\r\nX: y\n\r\n", "0\n\n", "0\r\n\n",
        "00000000000000001\r\nx\r\n0\r\n\r\n",
        "1;" + String(repeating: "e", count: 1_100) + "\r\nx\r\n0\r\n\r\n",
    ].map { post("Transfer-Encoding: chunked", $0, $0.hasPrefix("0000") ? 413 : 400) } + [
        post("Transfer-Encoding: chunked", "fffffffffffffff\r\n", 413), post("Transfer-Encoding: chunked", "8000000000000000\r\n", 413),
        post("Transfer-Encoding: chunked", "fffffffffffffffffff\r\n", 413), post("Transfer-Encoding: chunked", "100001\r\n", 413),
        post("Transfer-Encoding: chunked", String(repeating: "1;" + String(repeating: "e", count: 900) + "\r\nx\r\n", count: 20)),
        post("Transfer-Encoding: chunked", "0\r\n" + String(repeating: "X: y\r\n", count: 1_001) + "\r\n", 431),
        post("Transfer-Encoding: chunked", "0\r\nX: " + String(repeating: "y", count: 20_000), 431),
    ]

private let tooMuch: [Bad] = [
    Bad("GET /" + String(repeating: "a", count: 16_384), 414),
    Bad("GET /" + String(repeating: "a", count: 16_384) + " HTTP/1.1\r\nH|\r\n", 414),
    Bad("GET / HTTP/1.1\r\nH|X: " + String(repeating: "a", count: 16_384), 431),
    Bad("GET / HTTP/1.1\r\nH|" + String(repeating: "X: y\r\n", count: 100_000) + "\r\n", 431),
    Bad("GET / HTTP/1.1\r\nH|" + String(repeating: "a:\r\n", count: 1_000) + "\r\n", 431), Bad(String(repeating: "a", count: 20_000), 414),
]

private let allBad = badLines + badFields + badFramings + badChunks + tooMuch

@Suite(.bounded, .tags(.memory)) struct RefusalTests {
    /// The status with which the parser refuses; nil if it waits for more. A request is a mistake.
    private func refusal(of pieces: [[UInt8]]) throws -> Int? {
        var parser = RequestParser(HTTPServer.Options().parserLimits)
        var waiting: [UInt8] = []
        for piece in pieces {
            waiting += piece
            while true {  // ends: the parser waits, or refuses
                var consumed = 0
                let step = waiting.withUnsafeBytes { parser.next($0, consumed: &consumed) }
                waiting.removeFirst(consumed)
                switch step {
                case .needsMore: break
                case .expectsContinue: continue
                case .request(let head, let body, _): throw ClientError(description: "a request: \(head.target) \(body)")
                case .refused(let refusal): return refusal.status
                }
                break
            }
        }
        return nil
    }

    @Test(arguments: allBad) fileprivate func `the parser refuses, in one piece and byte by byte`(bad: Bad) throws {
        let bytes = Array(bad.text.utf8)
        #expect(try refusal(of: [bytes]) == bad.status)
        if bytes.count < 5_000 { #expect(try refusal(of: bytes.map { [$0] }) == bad.status) }
        // What follows changes nothing.
        #expect(try refusal(of: [bytes + Array(smuggled.utf8)]) == bad.status)
    }

    @Test func `a refusal is answered, the connection is closed, and nothing behind it is a request`() async throws {
        let handled = Locked<[String]>([])
        let respond: @Sendable (Request) async throws -> Response = { request in
            handled.withLock { $0.append(request.path) }
            return .text("handled")
        }
        try await withServer(respond: respond) { server in
            for bad in allBad where bad.text.utf8.count < 30_000 {
                let client = try Client(server)
                client.trySend(Array(bad.text.utf8) + Array(smuggled.utf8))
                let answer = try client.answer()
                #expect(answer.status == bad.status, "\(bad.testDescription)")
                #expect(answer["connection"] == "close")
                #expect(try client.isClosed(), "\(bad.testDescription)")
            }
            #expect(handled.withLock { $0 } == [])
        }
    }

    @Test func `the refusal of a HEAD has a length and no body`() async throws {
        try await withServer(respond: { _ in .text("handled") }) { server in
            for head in ["HEAD / HTTP/1.1\r\n\r\n", "HEAD /#x HTTP/1.1\r\n\r\n", "HEAD / HTTP/2.0\r\n\r\n"] {
                let client = try Client(server)
                let answer = try client.ask(head, isHead: true)
                #expect(answer.status >= 400 && answer["connection"] == "close")
                let length = try #require(answer["content-length"])
                #expect(length != "0")
                #expect(try client.isClosed())
            }
        }
    }

    @Test func `a hundred thousand fields are refused`() async throws {
        try await withServer(respond: { _ in .text("handled") }) { server in
            let client = try Client(server)
            client.trySend(Array((get().dropLast() + String(repeating: "X: y\r\n", count: 100_000)).utf8))
            #expect(try client.answer().status == 431)
        }
    }

    @Test func `a request that ends in the middle is a 400, and never reaches the handler`() async throws {
        try await withServer(respond: { _ in .text("handled") }) { server in
            for text in ["GET", "GET / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhell"] {
                let client = try Client(server)
                try client.send(text)
                client.finishSending()
                #expect(try client.answer().status == 400)
                #expect(try client.isClosed())
            }
            let client = try Client(server)
            client.finishSending()
            #expect(try client.isClosed())
        }
    }
}
