// The routes of the server.

import CLibevent
import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// The pages that are about the whole server. They are made on server loops, so the closures are thread-safe.
struct Pages: Sendable {
    var statistics: @Sendable () -> String
    /// Nil if the server has no status page.
    var status: (page: @Sendable () -> String, json: @Sendable () -> String)?
    /// Nil if clients cannot record the loops.
    var recorder: LoopRecorder?
}

/// The content of an answer.
struct Content {
    var code = HTTP_OK
    var reason = "OK"
    var type = "text/plain; charset=utf-8"
    var policy: String?
    var text: String

    static func refused(_ code: Int32, _ reason: String, _ text: String) -> Content { Content(code: code, reason: reason, text: text) }
}

/// A request that a timer answers.
struct SlowRequest {
    let request: OpaquePointer
    let timer: RunLoop.Timer
}

extension HTTPHost {
    func respond(to request: OpaquePointer) {
        let requests = counters.requests.value
        switch path(of: request) {
        case "/": reply(request, Content(text: "Hello from http-\(number), request \(requests) on this run loop.\n"))
        case "/slow": answerSlowly(request)
        case "/timeline" where pages.recorder != nil: answerWithRecording(request, .timeline)
        case "/trace.json" where pages.recorder != nil: answerWithRecording(request, .trace)
        case "/stall" where pages.recorder != nil: stall(request)
        case "/statistics": reply(request, Content(text: pages.statistics()))
        case "/status":
            guard let status = pages.status else { return refuse(request) }
            reply(request, Content(type: "text/html; charset=utf-8", policy: StatusPage.policy, text: status.page()))
        case "/status.json":
            guard let status = pages.status else { return refuse(request) }
            reply(request, Content(type: "application/json", text: status.json()))
        default: refuse(request)
        }
    }

    /// Invalidates the timers of the requests that still wait for them.
    func forgetSlowRequests() {
        for slow in slowRequests.values { slow.timer.invalidate() }
        slowRequests = [:]
    }

    private func refuse(_ request: OpaquePointer) {
        let status = pages.status == nil ? "" : ", /status, /status.json"
        let recordings = pages.recorder == nil ? "" : ", /timeline?ms=500, /trace.json?ms=500, /stall?ms=400"
        reply(request, .refused(HTTP_NOTFOUND, "Not Found", "There are /, /statistics\(status)\(recordings) and /slow?ms=200.\n"))
    }

    /// A number of milliseconds from the query. Nil if it is no such number, and the request is answered.
    func milliseconds(of request: OpaquePointer, default usual: Int, _ range: ClosedRange<Int>) -> Int? {
        guard let milliseconds = Int(Query(of: request)["ms"] ?? "\(usual)"), range.contains(milliseconds) else {
            reply(
                request, .refused(HTTP_BADREQUEST, "Bad Request", "ms is a number from \(range.lowerBound) to \(range.upperBound).\n"))
            return nil
        }
        return milliseconds
    }

    private func path(of request: OpaquePointer) -> String {
        guard let uri = evhttp_request_get_evhttp_uri(request), let path = evhttp_uri_get_path(uri) else { return "" }
        return String(cString: path)
    }

    // MARK: The slow route

    /// /slow?ms=200&label=text: a timer with that label answers. The label is the client's text, and the status page shows it.
    private func answerSlowly(_ request: OpaquePointer) {
        let query = Query(of: request)
        guard let milliseconds = milliseconds(of: request, default: 200, 0...60_000) else { return }
        let label = "slow request" + (query["label"].map { ": \(oneLine($0))" } ?? "")
        answer(request, after: milliseconds, label: label) { host in
            Content(text: "Hello from http-\(host.number), \(milliseconds) ms later.\n")
        }
    }

    /// Answers later, if the host is still there.
    func answer(_ request: OpaquePointer, after milliseconds: Int, label: String, _ content: @escaping @Sendable (HTTPHost) -> Content) {
        let number = counters.requests.value
        let here = LoopBound(self)
        let timer = RunLoop.Timer(fireAt: .now + .milliseconds(milliseconds), label: label) { _ in
            let host = here.value
            let content = content(host)
            guard let slow = host.slowRequests.removeValue(forKey: number) else { return }
            host.reply(slow.request, content)
        }
        slowRequests[number] = SlowRequest(request: request, timer: timer)
        loop.add(timer)
    }

    /// A label with line breaks would look like several items in the description of a loop.
    private func oneLine(_ text: String) -> String {
        var line = String.UnicodeScalarView()
        for scalar in text.unicodeScalars.prefix(80) {
            line.append(scalar.properties.generalCategory == .control ? " " : scalar)
        }
        return String(line)
    }

}

/// The parameters of a request.
private struct Query {
    private var values: [Substring: String] = [:]

    init(of request: OpaquePointer) {
        guard let uri = evhttp_request_get_evhttp_uri(request), let text = evhttp_uri_get_query(uri) else { return }
        for pair in String(cString: text).split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { values[parts[0]] = Query.decoded(parts[1]) }
        }
    }

    subscript(name: Substring) -> String? { values[name] }

    private static func decoded(_ text: Substring) -> String? {
        // With zero bytes the text ends at the first. The result "must be freed with free()" (event2/http.h).
        guard let decoded = evhttp_uridecode(String(text), 1, nil) else { return nil }
        defer { free(decoded) }
        return String(cString: decoded)
    }
}
