// libevent's DNS client and server on loops:
//  - Many names are resolved, also while handlers run other modes, or the same one.
//  - A name that does not exist, a server that says nothing, one that answers late, a truncated answer, a cancelled request.
//  - Client and server may share a loop.
//  - The requests in progress end with the client, and a thread ends while there are any.

import CLibevent
import EventLoop
import TestSupport
import Testing

@Suite(.libraryLimit) struct EvdnsTests {
    /// Runs `body` on a fresh thread, with a server on another one.
    private static func withServer(_ body: @escaping @Sendable (RunLoop, UInt16, Box<[String: Int]>) throws -> Void) throws {
        let host = try LibraryHost.dnsServer()
        let (port, queries) = try host.use { ($0.port, $0.counts.udp) }
        try onFreshThread { loop in try body(loop, port, queries) }
        try host.end()
    }

    private static func resolveMany(_ client: EvdnsClient, _ loop: RunLoop, _ mode: RunLoop.Mode, isInterrupted: Bool) throws {
        let count = 400
        let left = Countdown(count, on: loop)
        let calls = client.calls
        let timer = isInterrupted ? interrupt(loop, mode) { calls.value } : nil
        for number in 1...count {
            client.resolve("n\(number).example") { outcome in
                #expect(outcome == .addresses([address(ofNumber: number)]))
                // Inside evdns, inside libevent.
                if isInterrupted && number % 100 == 0 { runSilently(loop) { calls.value } }
                left.done()
            }
        }
        try left.wait(in: mode, "the addresses")
        timer?.invalidate()
        #expect(left.count == count)
        // An idle client does not keep its mode.
        #expect(loop.run(mode: mode, for: libraryPatience) == .finished)
    }

    @Test(arguments: hostModes, [false, true])
    func `many names are resolved`(mode: RunLoop.Mode, isInterrupted: Bool) throws {
        try Self.withServer { loop, port, _ in
            let client = try EvdnsClient(port, on: loop, mode)
            defer { client.free() }
            try Self.resolveMany(client, loop, mode, isInterrupted: isInterrupted)
        }
    }

    @Test(arguments: hostModes)
    func `client and server work on one loop`(mode: RunLoop.Mode) throws {
        try onFreshThread { loop in
            let server = try DNSServer(on: loop, mode)
            let client = try EvdnsClient(server.port, on: loop, mode)
            let left = Countdown(200, on: loop)
            for number in 1...200 {
                client.resolve("n\(number).example") { outcome in
                    #expect(outcome == .addresses([address(ofNumber: number)]))
                    left.done()
                }
            }
            try left.wait(in: mode, "the addresses")
            client.free()
            server.close()
            #expect(loop.run(mode: mode, for: libraryPatience) == .finished)
        }
    }

    @Test(arguments: hostModes)
    func `a name that does not exist is an error; of a truncated answer the beginning counts`(mode: RunLoop.Mode) throws {
        try Self.withServer { loop, port, _ in
            let client = try EvdnsClient(port, on: loop, mode)
            defer { client.free() }
            let left = Countdown(2, on: loop)
            client.resolve("none.example") { outcome in
                #expect(outcome == .error(DNS_ERR_NOTEXIST))
                left.done()
            }
            // libevent 2.1 does not ask again over TCP. It delivers at most 32 addresses.
            client.resolve("many.example") { outcome in
                #expect(outcome == .addresses((1...32).map { address(ofNumber: $0) }) || outcome == .error(DNS_ERR_TRUNCATED))
                left.done()
            }
            try left.wait(in: mode, "the outcomes")
        }
    }

    @Test(arguments: hostModes, [false, true])
    func `a server that says nothing is asked again, and then the request times out`(mode: RunLoop.Mode, isInterrupted: Bool) throws {
        try Self.withServer { loop, port, queries in
            let client = try EvdnsClient(port, on: loop, mode, options: [("timeout:", "0.1"), ("attempts:", "3")])
            defer { client.free() }
            let calls = client.calls
            let timer = isInterrupted ? interrupt(loop, mode) { calls.value } : nil
            let left = Countdown(1, on: loop)
            let start = RunLoop.Instant.now
            client.resolve("lost.example") { outcome in
                #expect(outcome == .error(DNS_ERR_TIMEOUT))
                left.done()
            }
            try left.wait(in: mode, "the timeout")
            timer?.invalidate()
            // Each of the three timeouts may be up to 4 ms early, because libevent's clock is coarse.
            #expect(RunLoop.Instant.now - start >= .milliseconds(3 * 96))
            try waitUntil("the server has the three queries", within: libraryPatience) { queries.value["lost.example"] == 3 }
        }
    }

    @Test(arguments: hostModes)
    func `a query that is lost is repeated`(mode: RunLoop.Mode) throws {
        try Self.withServer { loop, port, queries in
            let client = try EvdnsClient(port, on: loop, mode, options: [("timeout:", "0.2"), ("attempts:", "255")])
            defer { client.free() }
            let left = Countdown(1, on: loop)
            client.resolve("late2.example") { outcome in
                #expect(outcome == .addresses([address(ofNumber: 1)]))
                left.done()
            }
            try left.wait(in: mode, "the answer")
            #expect(queries.value["late2.example", default: 0] >= 3)
        }
    }

    @Test(arguments: hostModes)
    func `a cancelled request ends with an error, and others go on`(mode: RunLoop.Mode) throws {
        try Self.withServer { loop, port, _ in
            let client = try EvdnsClient(port, on: loop, mode, options: [("timeout:", "200")])
            defer { client.free() }
            let left = Countdown(2, on: loop)
            let request = client.resolve("lost.example") { outcome in
                #expect(outcome == .error(DNS_ERR_CANCEL))
                left.done()
            }
            client.resolve("n1.example") { outcome in
                #expect(outcome == .addresses([address(ofNumber: 1)]))
                client.cancel(request)
                left.done()
            }
            try left.wait(in: mode, "both outcomes")
        }
    }

    @Test(arguments: hostModes)
    func `the requests in progress end with the client, in the next run`(mode: RunLoop.Mode) throws {
        try Self.withServer { loop, port, _ in
            let client = try EvdnsClient(port, on: loop, mode, options: [("timeout:", "200")])
            let left = Countdown(20, on: loop)
            for number in 1...20 {
                client.resolve("lost\(number).example") { outcome in
                    #expect(outcome == .error(DNS_ERR_SHUTDOWN))
                    left.done()
                }
            }
            #expect(loop.run(mode: mode, for: .milliseconds(5)) == .timedOut)
            client.free(failing: true)
            try left.wait(in: mode, "the ends of the requests")
            #expect(loop.run(mode: mode, for: libraryPatience) == .finished)
        }
    }

    @Test(arguments: hostModes)
    func `threads end while client and server have requests`(mode: RunLoop.Mode) throws {
        let server = try LibraryHost.dnsServer(mode)
        let (port, queries) = try server.use { ($0.port, $0.counts.udp) }
        let host = try LibraryHost(mode, make: { try EvdnsClient(port, on: $0, mode) }, free: { $0.free() })
        try host.use { client in
            for number in 1...10 { client.resolve("lost\(number).example") { _ in } }
        }
        try waitUntil("the server has the queries", within: libraryPatience) { queries.value.count == 10 }
        try host.end()
        try server.end()
    }
}
