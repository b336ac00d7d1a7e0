// An HTTP API as a service, with what its operator asks: is it well, what are its figures, what does it do.
//
//   http-service [PORT | PATH]     a port of 127.0.0.1, or a Unix socket
//
//   /orders    takes orders in JSON
//   /health    200 if every loop answers within a second, 503 otherwise or while the service ends: for a load balancer
//   /metrics   the figures of swift-metrics in the text form of Prometheus
//   /status    a page for people
//
// Control-C and SIGTERM answer the requests that have been received, for ten seconds at most.

import EventLoop
import EventLoopHTTP
import EventLoopMetrics
import EventLoopServiceLifecycle
import HTTPTypes
import Logging
import Metrics
import ServiceLifecycle
import Synchronization
import UnixSignals

@main
enum Program {
    static func main() async throws {
        let place = CommandLine.arguments.dropFirst().first ?? "8080"
        let address = UInt16(place).map { RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: $0) } ?? .unix(path: place)
        LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
        let exposition = Exposition()
        MetricsSystem.bootstrap(exposition)
        try await serve(address, exposition, Logger(label: "http-service"))
    }

    static func serve(_ address: RunLoop.SocketAddress, _ exposition: Exposition, _ logger: Logger) async throws {
        let group = try RunLoopThreadGroup(count: 2, name: "http")
        let desk = Desk(group, exposition)
        let server = try HTTPServer(listeningOn: address, on: group.runLoops, label: "http-service") { try await desk.answer($0) }
        logger.info("listening", metadata: ["address": "\(server.localAddress)"])
        // Services end in reverse order: first the server, with the threads of its loops still there.
        let services = ServiceGroup(
            services: [RunLoopService(group), HTTPService(server)], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
        try await services.run()
        desk.metrics.invalidate()
    }
}

/// Answers the requests. Its handlers run on all loops of the group.
final class Desk: Sendable {
    let metrics: RunLoopMetrics
    private let loops: [RunLoop]
    private let exposition: Exposition
    private let startedAt = RunLoop.Instant.now

    init(_ group: RunLoopThreadGroup, _ exposition: Exposition) {
        (loops, self.exposition) = (group.runLoops, exposition)
        metrics = RunLoopMetrics(group, name: "http")
    }

    func answer(_ request: HTTPServer.Request) async throws -> HTTPServer.Response {
        let began = RunLoop.Instant.now
        // The server answers an error with 500.
        var code = 500
        defer {
            Counter(label: "http_requests_total", dimensions: [("status", "\(code)")]).increment()
            Timer(label: "http_request_duration_seconds").record(duration: began.duration(to: .now))
        }
        let response =
            switch request.path {
            case "/orders": try placeOrder(request)
            case "/health": await health()
            case "/metrics": figures()
            case "/status": status()
            default: HTTPServer.Response.text("\(request.path) is not here\n", status: .notFound)
            }
        code = response.head.status.code
        return response
    }

    /// A loop that a handler blocks does not perform the closure.
    private func health() async -> HTTPServer.Response {
        let answers = Answers()
        for loop in loops { loop.perform { answers.count.add(1, ordering: .relaxed) } }
        for _ in 0..<100 {
            if answers.count.load(ordering: .relaxed) == loops.count { return .text("well\n") }
            // The client has gone, or the service ends.
            do { try await Task.sleep(for: .milliseconds(10)) } catch { break }
        }
        return .text("a loop does not answer\n", status: .serviceUnavailable)
    }

    private final class Answers: Sendable {
        let count = Atomic<Int>(0)
    }

    private func figures() -> HTTPServer.Response {
        metrics.report()
        var response = HTTPServer.Response.text(exposition.text)
        response.head.headerFields[.contentType] = "text/plain; version=0.0.4; charset=utf-8"
        return response
    }

    private func status() -> HTTPServer.Response {
        let rows = loops.enumerated().map { number, loop in
            let statistics = loop.statistics
            let cells = [
                "http-\(number)", "\(statistics.passes)", "\(statistics.sourcesHandled)", "\(statistics.jobsPerformed)",
                "\(statistics.timeWorking)", "\(statistics.longestPass)",
            ]
            return "<tr>" + cells.map { "<td>\($0)</td>" }.joined() + "</tr>"
        }
        let page = """
            <!doctype html><html lang="en"><meta charset="utf-8"><title>http-service</title>
            <h1>http-service</h1><p>It has served for \(startedAt.duration(to: .now)).</p>
            <table><tr><th>loop<th>passes<th>sources<th>jobs<th>at work<th>longest pass</tr>
            \(rows.joined(separator: "\n"))
            </table></html>

            """
        return .init(
            headerFields: [.contentType: "text/html; charset=utf-8", .cacheControl: "no-store"], body: .bytes(Array(page.utf8)))
    }
}
