// libunbound on a loop, with a DNS server on another one:
//  - Many names are resolved, also while handlers run other modes, or the same one.
//  - A name that does not exist, a lost query, an answer that must come over TCP, a cancelled request.
//  - A thread ends while requests are in progress.

import EventLoop
import TestSupport
import Testing

@Suite(.libraryLimit) struct UnboundTests {
    private typealias Outcome = UnboundResolver.Outcome

    /// Runs `body` with a resolver on a fresh thread, and a server on another one.
    private static func withResolver(
        _ mode: RunLoop.Mode, _ body: @escaping @Sendable (RunLoop, UnboundResolver, DNSServer.Counts) throws -> Void
    ) throws {
        let host = try LibraryHost.dnsServer()
        let (port, counts) = try host.use { ($0.port, $0.counts) }
        try onFreshThread { loop in
            let resolver = try UnboundResolver(port, on: loop, mode)
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
                    #expect(outcome == Outcome(code: 0, answers: 1, lastAddress: address(ofNumber: number)))
                    // Inside libunbound, inside libevent.
                    if isInterrupted && number % 50 == 0 { runSilently(loop) { calls.value } }
                    left.done()
                }
            }
            try left.wait(in: mode, "the addresses")
            timer?.invalidate()
        }
    }

    @Test(arguments: hostModes)
    func `a name that does not exist is reported`(mode: RunLoop.Mode) throws {
        try Self.withResolver(mode) { loop, resolver, _ in
            let left = Countdown(1, on: loop)
            resolver.resolve("none.example") { outcome in
                #expect(outcome.code == 3 && outcome.answers == 0)
                left.done()
            }
            try left.wait(in: mode, "the answer")
        }
    }

    @Test(arguments: hostModes)
    func `a query that is lost is repeated`(mode: RunLoop.Mode) throws {
        try Self.withResolver(mode) { loop, resolver, counts in
            let left = Countdown(1, on: loop)
            resolver.resolve("late2.example") { outcome in
                #expect(outcome == Outcome(code: 0, answers: 1, lastAddress: address(ofNumber: 1)))
                left.done()
            }
            try left.wait(in: mode, "the answer")
            #expect(counts.udp.value["late2.example", default: 0] >= 3)
        }
    }

    @Test(arguments: hostModes)
    func `a truncated answer comes again over TCP`(mode: RunLoop.Mode) throws {
        try Self.withResolver(mode) { loop, resolver, counts in
            let left = Countdown(1, on: loop)
            resolver.resolve("many.example") { outcome in
                #expect(outcome.code == 0 && outcome.answers == 100)
                left.done()
            }
            try left.wait(in: mode, "the answer")
            #expect(counts.tcp.value["many.example", default: 0] >= 1)
        }
    }

    @Test(arguments: hostModes)
    func `a cancelled request is not answered, and others are`(mode: RunLoop.Mode) throws {
        try Self.withResolver(mode) { loop, resolver, _ in
            let left = Countdown(1, on: loop)
            let request = resolver.resolve("late1.example") { _ in Issue.record("the request was cancelled") }
            resolver.cancel(request)
            resolver.resolve("n5.example") { outcome in
                #expect(outcome == Outcome(code: 0, answers: 1, lastAddress: address(ofNumber: 5)))
                left.done()
            }
            try left.wait(in: mode, "the answer")
            // The query goes on, for libunbound's cache. It is asked again after a moment, and then answered.
            #expect(loop.run(mode: mode, for: .milliseconds(20)) == .timedOut)
        }
    }

    @Test(arguments: hostModes)
    func `threads end while resolver and server have requests`(mode: RunLoop.Mode) throws {
        let server = try LibraryHost.dnsServer(mode)
        let (port, counts) = try server.use { ($0.port, $0.counts) }
        let host = try LibraryHost(mode, make: { try UnboundResolver(port, on: $0, mode) }, free: { $0.free() })
        try host.use { resolver in
            for number in 1...10 { resolver.resolve("lost\(number).example") { _ in } }
        }
        try waitUntil("the server has the queries", within: libraryPatience) { counts.udp.value.count >= 10 }
        try host.end()
        try server.end()
    }
}
