// getdns on a loop, with a DNS server on another one:
//  - Many names are resolved, also while handlers run other modes, or the same one.
//  - A name that does not exist, a timeout, an answer that must come over TCP, a cancelled request.
//  - The requests in progress end with the context, and a thread ends while there are any.

import EventLoop
import TestSupport
import Testing

@Suite(.libraryLimit) struct GetdnsTests {
    /// Runs `body` with a resolver on a fresh thread, and a server on another one.
    private static func withResolver(
        _ mode: RunLoop.Mode, timeoutMilliseconds: UInt64 = 60_000,
        _ body: @escaping @Sendable (RunLoop, GetdnsResolver, DNSServer.Counts) throws -> Void
    ) throws {
        let host = try LibraryHost.dnsServer()
        let (port, counts) = try host.use { ($0.port, $0.counts) }
        try onFreshThread { loop in
            let resolver = try GetdnsResolver(port, on: loop, mode, timeoutMilliseconds: timeoutMilliseconds)
            defer { resolver.free() }
            try body(loop, resolver, counts)
        }
        try host.end()
    }

    @Test(arguments: hostModes, [false, true])
    func `many names are resolved`(mode: RunLoop.Mode, isInterrupted: Bool) throws {
        try Self.withResolver(mode) { loop, resolver, _ in
            let count = 200
            let left = Countdown(count, on: loop)
            let calls = resolver.calls
            let timer = isInterrupted ? interrupt(loop, mode) { calls.value } : nil
            for number in 1...count {
                resolver.resolve("n\(number).example") { outcome in
                    #expect(outcome == .reply(code: 0, answers: 1))
                    // Inside getdns, inside libevent.
                    if isInterrupted && number % 50 == 0 { runSilently(loop) { calls.value } }
                    left.done()
                }
            }
            try left.wait(in: mode, "the addresses")
            timer?.invalidate()
        }
    }

    @Test(arguments: hostModes)
    func `a name that does not exist is reported, and a truncated answer comes again over TCP`(mode: RunLoop.Mode) throws {
        try Self.withResolver(mode) { loop, resolver, counts in
            let left = Countdown(2, on: loop)
            resolver.resolve("none.example") { outcome in
                #expect(outcome == .reply(code: 3, answers: 0))
                left.done()
            }
            resolver.resolve("many.example") { outcome in
                #expect(outcome == .reply(code: 0, answers: 100))
                left.done()
            }
            try left.wait(in: mode, "the answers")
            #expect(counts.tcp.value["many.example", default: 0] >= 1)
        }
    }

    @Test(arguments: hostModes)
    func `a request times out`(mode: RunLoop.Mode) throws {
        try Self.withResolver(mode, timeoutMilliseconds: 300) { loop, resolver, _ in
            let left = Countdown(1, on: loop)
            let start = RunLoop.Instant.now
            resolver.resolve("lost.example") { outcome in
                #expect(outcome == .timedOut)
                // libevent's clock is coarse.
                #expect(RunLoop.Instant.now - start >= .milliseconds(290))
                left.done()
            }
            try left.wait(in: mode, "the timeout")
        }
    }

    @Test(arguments: hostModes)
    func `a cancelled request ends, and others are answered`(mode: RunLoop.Mode) throws {
        try Self.withResolver(mode) { loop, resolver, _ in
            let isCancelled = Box(false)
            let request = resolver.resolve("lost.example") { outcome in
                #expect(outcome == .cancelled)
                isCancelled.value = true
            }
            for number in 1...2 {
                let left = Countdown(1, on: loop)
                resolver.resolve("n\(number).example") { outcome in
                    #expect(outcome == .reply(code: 0, answers: 1))
                    left.done()
                }
                try left.wait(in: mode, "the answer")
                if number == 1 { resolver.cancel(request) }
            }
            #expect(isCancelled.value)
        }
    }

    @Test(arguments: hostModes)
    func `threads end while resolver and server have requests, and each request ends once`(mode: RunLoop.Mode) throws {
        let server = try LibraryHost.dnsServer(mode)
        let (port, counts) = try server.use { ($0.port, $0.counts) }
        let host = try LibraryHost(mode, make: { try GetdnsResolver(port, on: $0, mode) }, free: { $0.free() })
        let cancelled = Box(0)
        try host.use { resolver in
            for number in 1...10 {
                resolver.resolve("lost\(number).example") { outcome in if outcome == .cancelled { cancelled.increment() } }
            }
        }
        try waitUntil("the server has the queries", within: libraryPatience) { counts.udp.value.count >= 10 }
        try host.end()
        #expect(cancelled.value == 10)
        try server.end()
    }
}
