// libcurl's multi interface on descriptor sources and a timer, with an HTTP server on another loop:
//  - Parallel transfers arrive whole, also while handlers run other modes, or the same one, and while runs are stopped.
//  - Timeouts, cancelled transfers, redirects, connections that stay open, and a server that ends.
//  - A thread ends while transfers are in progress.

import CCurl
import EventLoop
import TestSupport
import Testing

@Suite(.libraryLimit) struct CurlTests {
    enum Disturbance: String, CaseIterable, Sendable { case none, nestedRuns, stops }

    /// Runs `body` with a client on a fresh thread, and a server on another one.
    private static func withClientAndServer(
        _ mode: RunLoop.Mode, _ body: @escaping @Sendable (RunLoop, CurlClient, UInt16, LibraryHost<HTTPServer>) throws -> Void
    ) throws {
        let host = try LibraryHost.httpServer()
        let port = try host.use { $0.port }
        try onFreshThread { loop in
            let client = CurlClient(on: loop, mode)
            defer { client.close() }
            try body(loop, client, port, host)
        }
        try host.end()
    }

    @Test(arguments: hostModes, Disturbance.allCases)
    func `parallel transfers arrive whole`(mode: RunLoop.Mode, disturbance: Disturbance) throws {
        try Self.withClientAndServer(mode) { loop, client, port, _ in
            let sizes = (0..<100).map { 50_000 + $0 } + [4_000_003, 4_000_005]
            let left = Countdown(sizes.count, on: loop)
            let connects = Box(0)
            let calls = client.calls
            let timer = disturbance == .nestedRuns ? interrupt(loop, mode) { calls.value } : nil
            for size in sizes {
                let transfer = client.get(port, "/bytes/\(size)") { transfer, result in
                    #expect(result == CURLE_OK)
                    #expect(transfer.received == size)
                    #expect(transfer.alphabet == [UInt8(ascii: "0") + UInt8(size % 10)])
                    let number = transfer.number(CURLINFO_NUM_CONNECTS)
                    connects.change { $0 += number }
                    left.done()
                }
                switch disturbance {
                case .none: break
                // Inside libcurl, in the handler of a source.
                case .nestedRuns: transfer.onPiece = { if $0.received % 7 == 0 { runSilently(loop) { calls.value } } }
                case .stops: transfer.onPiece = { if $0.received % 7 == 0 { loop.stop() } }
                }
            }
            try left.wait(in: mode, "the transfers")
            timer?.invalidate()
            #expect((1...8).contains(connects.value), "\(connects.value) connections for \(sizes.count) transfers")
        }
    }

    @Test(arguments: hostModes)
    func `a transfer times out while others go on`(mode: RunLoop.Mode) throws {
        try Self.withClientAndServer(mode) { loop, client, port, host in
            let left = Countdown(7, on: loop)
            let start = RunLoop.Instant.now
            for _ in 1...5 {
                client.get(port, "/held", timeoutMilliseconds: 50) { _, result in
                    #expect(result == CURLE_OPERATION_TIMEDOUT)
                    #expect(RunLoop.Instant.now - start >= .milliseconds(50))
                    left.done()
                }
            }
            for _ in 1...2 {
                client.get(port, "/bytes/1000") { transfer, result in
                    #expect(result == CURLE_OK)
                    #expect(transfer.received == 1000)
                    left.done()
                }
            }
            try left.wait(in: mode, "the transfers and the timeouts")
        }
    }

    @Test(arguments: hostModes)
    func `cancelled transfers end silently, and the others arrive`(mode: RunLoop.Mode) throws {
        try Self.withClientAndServer(mode) { loop, client, port, host in
            let begun = Countdown(4, on: loop)
            let ended = Countdown(2, on: loop)
            let areCancelled = Box(false)
            let size = 3_000_000
            let transfers = (0..<4).map { number in
                let transfer = client.get(port, "/bytes/\(size)") { transfer, result in
                    #expect(result == CURLE_OK && transfer.received == size)
                    if number % 2 == 0 { ended.done() } else { #expect(!areCancelled.value, "a cancelled transfer ended") }
                }
                let piece = Once()
                transfer.onPiece = { _ in if piece.isFirst() { begun.done() } }
                return transfer
            }
            try begun.wait(in: mode, "the beginning of each transfer")
            // A transfer that has ended cannot be cancelled any more.
            client.cancel(transfers[1])
            client.cancel(transfers[3])
            areCancelled.value = true
            try ended.wait(in: mode, "the transfers that were not cancelled")
        }
    }

    @Test(arguments: hostModes)
    func `redirects are followed on one connection`(mode: RunLoop.Mode) throws {
        try Self.withClientAndServer(mode) { loop, client, port, _ in
            let left = Countdown(1, on: loop)
            client.get(port, "/redirect/5") { transfer, result in
                #expect(result == CURLE_OK)
                #expect(transfer.number(CURLINFO_REDIRECT_COUNT) == 5)
                #expect(transfer.number(CURLINFO_NUM_CONNECTS) == 1)
                #expect(transfer.alphabet == Set("arrived".utf8))
                left.done()
            }
            try left.wait(in: mode, "the end of the redirects")
        }
    }

    @Test(arguments: hostModes)
    func `successive transfers share one connection`(mode: RunLoop.Mode) throws {
        try Self.withClientAndServer(mode) { loop, client, port, _ in
            let left = Countdown(50, on: loop)
            let connects = Box(0)
            func next() {
                client.get(port, "/") { transfer, result in
                    #expect(result == CURLE_OK)
                    let number = transfer.number(CURLINFO_NUM_CONNECTS)
                    connects.change { $0 += number }
                    left.done()
                    if left.count < 50 { next() }
                }
            }
            next()
            try left.wait(in: mode, "the transfers")
            #expect(connects.value == 1)
        }
    }

    @Test(arguments: hostModes)
    func `transfers fail when the server ends`(mode: RunLoop.Mode) throws {
        let host = try LibraryHost.httpServer()
        let (port, held) = try host.use { ($0.port, $0.heldCount) }
        let end = plainThread {
            try waitUntil("the server has the requests", within: libraryPatience) { held.value == 5 }
            try host.end()
        }
        try onFreshThread { loop in
            let client = CurlClient(on: loop, mode)
            defer { client.close() }
            let left = Countdown(5, on: loop)
            for _ in 1...5 {
                // The server replies and ends. Whether a reply gets through is a matter of chance.
                client.get(port, "/held") { transfer, result in
                    #expect(result != CURLE_OK || transfer.received == 4)
                    left.done()
                }
            }
            try left.wait(in: mode, "the end of the transfers")
        }
        try end.join()
    }

    @Test(arguments: hostModes)
    func `client and server work on one loop`(mode: RunLoop.Mode) throws {
        try onFreshThread { loop in
            ignoreBrokenPipes()
            let server = try HTTPServer(on: loop, mode)
            let client = CurlClient(on: loop, mode)
            defer {
                client.close()
                server.close()
            }
            let left = Countdown(100, on: loop)
            for _ in 1...100 {
                client.get(server.port, "/bytes/100000") { transfer, result in
                    #expect(result == CURLE_OK && transfer.received == 100_000)
                    left.done()
                }
            }
            try left.wait(in: mode, "the transfers")
        }
    }

    @Test(arguments: hostModes)
    func `a completion may wait for another client, in a nested run of another mode`(mode: RunLoop.Mode) throws {
        try Self.withClientAndServer(mode) { loop, client, port, _ in
            let inner = CurlClient(on: loop, "inner")
            defer { inner.close() }
            let left = Countdown(20, on: loop)
            for _ in 1...20 {
                client.get(port, "/") { _, result in
                    #expect(result == CURLE_OK)
                    let before = client.calls.value
                    let answer = Countdown(1, on: loop)
                    inner.get(port, "/bytes/70000") { transfer, result in
                        #expect(result == CURLE_OK && transfer.received == 70_000)
                        answer.done()
                    }
                    do { try answer.wait(in: "inner", "the inner transfer") } catch { Issue.record(error) }
                    #expect(client.calls.value == before, "the outer client was called in the inner mode")
                    left.done()
                }
            }
            try left.wait(in: mode, "the outer transfers")
        }
    }

    @Test(arguments: hostModes)
    func `a thread ends while transfers are in progress`(mode: RunLoop.Mode) throws {
        let server = try LibraryHost.httpServer()
        let (port, held) = try server.use { ($0.port, $0.heldCount) }
        let host = try LibraryHost(mode, make: { CurlClient(on: $0, mode) }, free: { $0.close() })
        try host.use { client in
            for _ in 1...4 { client.get(port, "/held") { _, _ in Issue.record("the transfer was dropped") } }
            for _ in 1...2 { client.get(port, "/bytes/20000000") { _, _ in } }
        }
        try waitUntil("the server has the requests", within: libraryPatience) { held.value == 4 }
        try host.end()
        try server.end()
    }
}
