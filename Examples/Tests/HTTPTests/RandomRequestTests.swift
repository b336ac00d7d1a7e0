// Rules proved here: random requests, most of them nearly valid, are read as a plain definition reads them, in any pieces, and a server answers
// them accordingly. EVENTLOOP_HTTP_REQUESTS=200000 is the long form.

import EventLoop
import HTTPTypes
import TestSupport
import Testing

@testable import EventLoopHTTP

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private let longCount = getenv("EVENTLOOP_HTTP_REQUESTS").flatMap { Int(String(cString: $0)) }
private let count = longCount ?? 3_000
private let (headLimit, bodyLimit) = (512, 300)

/// The same numbers in each run: a failure names its seed.
private struct Numbers: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}

/// One to three requests, and up to three random changes of them.
private func randomRequests(_ numbers: inout Numbers) -> [UInt8] {
    func pick<T>(_ choices: [T]) -> T { choices.randomElement(using: &numbers)! }
    var bytes: [UInt8] = []
    for _ in 0...Int.random(in: 0...2, using: &numbers) {
        if Int.random(in: 0..<10, using: &numbers) == 0 { bytes += Array("\r\n".utf8) }
        let targets = ["/", "/", "/a?b=c", "*", "http://h/x", "https://h:1", "http://:1/", "/%20", "/ü", "h:443", "", "/#"]
        var text = "\(pick(["GET", "POST", "POST", "HEAD", "OPTIONS", "CONNECT", "G(T"])) \(pick(targets)) "
        text += pick(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.9"]) + "\r\n"
        let hosts = ["t", "t", "t", "[::1]:8", "a:b", "", "[]:8", "[x]", ":8"]
        if Int.random(in: 0..<20, using: &numbers) > 0 { text += "Host: \(pick(hosts))\r\n" }
        for _ in 0..<Int.random(in: 0...3, using: &numbers) {
            text += pick([
                "X: y", "X:", "Connection: close", "Connection: keep-alive, x", "Connection: ,close,", "Expect: 100-continue", "Expect: x",
                "Host: u",
                "A : b", " c", "Content-Length: 0", "Content-Length: 5", "Content-Length: +5", "Content-Length: 400",
                "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding: gzip",
                "Transfer-Encoding: chunked, chunked",
                "Transfer-Encoding: ,", "Long: " + String(repeating: "l", count: 200),
            ])
            text += "\r\n"
        }
        text += pick([
            "Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "\r\n", "\r\n",
            "Transfer-Encoding: chunked\r\n\r\n1;e=f\r\nx\r\n00A\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n12C\r\n\(String(repeating: "z", count: 300))\r\n0\r\n\r\n",
            "Content-Length: 300\r\n\r\n" + String(repeating: "z", count: 300),
        ])
        bytes += Array(text.utf8)
    }
    for _ in 0..<Int.random(in: 0...3, using: &numbers) where !bytes.isEmpty {
        let place = Int.random(in: bytes.indices, using: &numbers)
        let byte = pick([0, 9, 10, 13, 32, 44, 48, 58, 59, 127, 200, UInt8.random(in: 0...255, using: &numbers)])
        switch Int.random(in: 0..<5, using: &numbers) {
        case 0: bytes[place] = byte
        case 1: bytes.insert(byte, at: place)
        case 2: bytes.remove(at: place)
        case 3: bytes.replaceSubrange(place..<min(place + 2, bytes.count), with: pick([[13, 10], [10], [13], []]))
        default: bytes.removeSubrange(place...)
        }
    }
    return bytes
}

@Suite(.bounded, .tags(.memory)) struct RandomRequestTests {
    private func read(_ input: [UInt8], in pieces: (() -> Int)?) -> PlainReading {
        var (reading, parser, waiting, coming) = (
            PlainReading(), RequestParser(.init(head: headLimit, body: bodyLimit)), [UInt8](), input[...]
        )
        while !coming.isEmpty {  // ends: each turn takes a byte
            let size = pieces?() ?? coming.count
            waiting += coming.prefix(size)
            coming = coming.dropFirst(size)
            var isWaiting = false
            while !isWaiting {  // ends: the parser waits, or refuses
                var consumed = 0
                let step = waiting.withUnsafeBytes { parser.next($0, consumed: &consumed) }
                waiting.removeFirst(consumed)
                switch step {
                case .needsMore: isWaiting = true
                case .expectsContinue: break
                case .request(let head, let body, let keepsAlive):
                    // What the handler would see is made of the same bytes.
                    let made = head.made
                    reading.requests.append(
                        PlainRequest(
                            method: Array(made.method.rawValue.utf8), path: Array((made.path ?? "").utf8),
                            fields: made.headerFields.count + (head.testsOnlyHasHost ? 1 : 0), body: body, keepsAlive: keepsAlive))
                case .refused:
                    reading.isRefused = true
                    return reading
                }
            }
        }
        return reading
    }

    @Test func `the parser reads random requests as the definition does, in any pieces`() {
        for seed in 0..<UInt64(count) {
            var numbers = Numbers(state: seed)
            let input = randomRequests(&numbers)
            let expected = plainReading(input, headLimit: headLimit, bodyLimit: bodyLimit)
            let longest = Int.random(in: 1...40, using: &numbers)
            let whole = read(input, in: nil)
            let pieces = read(input, in: { Int.random(in: 1...longest, using: &numbers) })
            if whole != expected || pieces != expected {
                Issue.record("seed \(seed): \(String(decoding: input, as: UTF8.self).debugDescription)\n\(expected)\n\(whole)\n\(pieces)")
                return
            }
        }
    }

    @Test func `a server answers random requests, and refuses what is none`() async throws {
        var options = HTTPServer.Options()
        (options.headLimit, options.bodyLimit) = (headLimit, bodyLimit)
        try await withServer(options: options, respond: { _ in .text("ok") }) { server in
            for seed in 0..<UInt64(longCount ?? 300) {
                var numbers = Numbers(state: seed)
                let input = randomRequests(&numbers)
                let expected = plainReading(input, headLimit: headLimit, bodyLimit: bodyLimit)
                let client = try Client(server)
                client.trySend(input)
                client.finishSending()
                let text = String(decoding: try client.rest(), as: UTF8.self)
                let statuses = text.matches(of: #/HTTP/1\.1 (\d\d\d) /#).compactMap { Int($0.output.1) }.filter { $0 != 100 }
                let last = expected.requests.firstIndex { !$0.keepsAlive }
                let served = last.map { $0 + 1 } ?? expected.requests.count
                let (fine, rest) = (statuses.prefix { $0 == 200 }.count, statuses.drop { $0 == 200 })
                // What is not whole at the end of the connection is refused, too.
                let isRight = fine == served && (last != nil ? rest.isEmpty : rest.count == 1 || rest.isEmpty && !expected.isRefused)
                if !isRight {
                    Issue.record("seed \(seed): \(String(decoding: input, as: UTF8.self).debugDescription)\n\(expected)\n\(statuses)")
                    return
                }
            }
        }
    }
}
