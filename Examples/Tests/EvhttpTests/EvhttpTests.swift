// libevent's HTTP server on a loop, under load of wrk:
//  - Every request is answered, and wrk reports no error; also while handlers run other modes, or the same one, and while runs are stopped.
//  - A server that stops accepting answers the requests in progress.
//  - Its thread ends, whatever the server is doing.

import EventLoop
import TestSupport
import Testing

@Suite(.libraryLimit) struct EvhttpTests {
    enum Disturbance: String, CaseIterable, Sendable { case none, nestedRuns, stops }

    @Test(arguments: hostModes, Disturbance.allCases)
    func `evhttp answers every request of wrk`(mode: RunLoop.Mode, disturbance: Disturbance) throws {
        let host = try LibraryHost.httpServer(mode)
        let loop = host.loop
        let (port, requests, answers) = try host.use { server in
            switch disturbance {
            case .none: break
            case .nestedRuns: _ = interrupt(loop, mode, times: 200) { [requests = server.requests] in requests.value }
            case .stops: server.onRequest = { server in if server.requests.value % 50 == 0 { loop.stop() } }
            }
            return (server.port, server.requests, server.answers)
        }
        let report = try load(port, seconds: 1)
        try host.end()

        #expect(report.text.contains("Socket errors") == false, "\(report.text)")
        #expect(report.text.contains("Non-2xx") == false, "\(report.text)")
        #expect(report.requests > 0, "\(report.text)")
        #expect(requests.value == answers.value)
        // When its time is over, wrk drops the answers that are on their way: one for each connection.
        #expect((report.requests...report.requests + load.connections).contains(answers.value), "\(answers.value) for \(report.requests)")
    }

    @Test(arguments: hostModes)
    func `a server that stops accepting answers the requests in progress`(mode: RunLoop.Mode) throws {
        let host = try LibraryHost.httpServer(mode)
        let (port, held) = try host.use { ($0.port, $0.heldCount) }
        let clients = try (1...8).map { _ in try Client(port: port) }
        for client in clients { try client.send("GET /held HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n") }
        try waitUntil("the server has all requests", within: libraryPatience) { held.value == clients.count }

        try host.use { server in
            server.stopAccepting()
            server.answerHeld()
        }
        for client in clients {
            let answer = try client.receiveToEnd()
            #expect(answer.hasPrefix("HTTP/1.1 200") && answer.hasSuffix("held"), "\(answer)")
        }
        try host.end()
    }

    @Test(arguments: hostModes)
    func `a thread ends while its server holds requests`(mode: RunLoop.Mode) throws {
        let host = try LibraryHost.httpServer(mode)
        let (port, held) = try host.use { ($0.port, $0.heldCount) }
        let clients = try (1...8).map { _ in try Client(port: port) }
        for client in clients { try client.send("GET /held HTTP/1.1\r\nHost: here\r\n\r\n") }
        try waitUntil("the server has all requests", within: libraryPatience) { held.value == clients.count }

        try host.end()
        for client in clients { _ = try client.receiveToEnd() }
    }

    @Test(arguments: hostModes)
    func `a thread ends under load`(mode: RunLoop.Mode) throws {
        let host = try LibraryHost.httpServer(mode)
        let (port, requests) = try host.use { ($0.port, $0.requests) }
        let isOver = Box(false)
        // On a busy machine, a second may not be enough. The last run may find no server.
        let wrk = plainThread { repeat { _ = try? load(port, seconds: 1) } while !isOver.value }
        try waitUntil("the load has begun", within: libraryPatience) { requests.value > 100 }
        isOver.value = true
        try host.end()
        try wrk.join()
    }

    private let load = Wrk()
    private func load(_ port: UInt16, seconds: Int) throws -> Wrk.Report { try load.run(port, seconds: seconds) }
}

/// The load generator.
struct Wrk {
    let connections = 16

    struct Report: Sendable {
        let text: String
        let requests: Int
    }

    func run(_ port: UInt16, seconds: Int) throws -> Report {
        let text = try output(of: "wrk", ["-t1", "-c\(connections)", "-d\(seconds)s", "--timeout", "200s", "http://127.0.0.1:\(port)/"])
        // "  123456 requests in 1.00s, 12.34MB read"
        let line = text.split(separator: "\n").first { $0.contains(" requests in ") }
        let count = line.flatMap { Int($0.split(separator: " ")[0]) }
        return Report(text: text, requests: count ?? 0)
    }
}
