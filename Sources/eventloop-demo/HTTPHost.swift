// libevent's own HTTP server on one run loop, next to whatever else the loop does.
//
// Lifecycle of the evhttp: made and freed by its host, on the loop's thread. It owns the listening socket and
// every connection from then on, and its events live on the loop's event base, which ends with the
// thread: so it must be freed in the thread's teardown.
// Lifecycle of the host: `open` makes it, the server keeps it until `close`; evhttp calls back with an
// unretained pointer to it, which is safe for as long, since evhttp_free comes first.

import CLibevent
import EventLoop

final class HTTPHost {
    /// 0, 1, 2…, as in the name of its thread, "http-0".
    let number: Int
    let loop: RunLoop
    private let http: OpaquePointer
    private let inbox: Inbox
    private let report: @Sendable () -> String
    /// Empty between requests: evhttp_send_reply takes what is in it.
    private let body: OpaquePointer
    private var answered: UInt64 = 0
    private var notHandedOver: UInt64 = 0
    private var handOverTimer: RunLoop.Timer?

    private static let batchSize: UInt64 = 256

    /// On the loop's thread. - Parameter report: the text of /statistics.
    static func open(
        number: Int, loop: RunLoop, listeningOn descriptor: Int32, inbox: Inbox, report: @escaping @Sendable () -> String
    ) throws(DemoError) -> HTTPHost {
        // The base that the loop waits on in its default mode. What evhttp registers there is served
        // whenever the loop runs in that mode.
        guard let http = loop.withEventBase({ evhttp_new($0) }), let body = evbuffer_new() else {
            throw DemoError(sentence: "libevent has no memory for an HTTP server")
        }
        evhttp_set_allowed_methods(http, UInt16(EVHTTP_REQ_GET.rawValue | EVHTTP_REQ_HEAD.rawValue))
        evhttp_set_max_headers_size(http, 16 * 1024)
        evhttp_set_max_body_size(http, 16 * 1024)
        evhttp_set_timeout(http, 30)
        // "Makes an HTTP server accept connections on the specified socket" (event2/http.h); 0 on success,
        // and from then on evhttp_free closes it.
        guard evhttp_accept_socket(http, descriptor) == 0 else {
            evbuffer_free(body)
            evhttp_free(http)
            throw DemoError(sentence: "libevent does not accept the listening socket")
        }
        return HTTPHost(number: number, loop: loop, http: http, body: body, inbox: inbox, report: report)
    }

    private init(
        number: Int, loop: RunLoop, http: OpaquePointer, body: OpaquePointer, inbox: Inbox,
        report: @escaping @Sendable () -> String
    ) {
        (self.number, self.loop, self.http, self.body, self.inbox, self.report) = (number, loop, http, body, inbox, report)
        evhttp_set_gencb(http, answerRequest, Unmanaged.passUnretained(self).toOpaque())
        // A timer without a date of its own: an idle server wakes up for nothing.
        let here = LoopBound(self)
        let timer = RunLoop.Timer.onDemand(label: "hand over") { _ in here.value.handOver() }
        timer.tolerance = .milliseconds(5)
        loop.add(timer)
        handOverTimer = timer
    }

    /// On the loop's thread, last: closes the listener and the connections, and hands over what is left.
    func close() {
        evhttp_free(http)
        evbuffer_free(body)
        handOverTimer?.invalidate()
        handOver()
    }

    fileprivate func answer(_ request: OpaquePointer) {
        answered += 1
        switch path(of: request) {
        case "/": reply(request, HTTP_OK, "OK", "Hello from http-\(number), request \(answered) on this run loop.\n")
        case "/statistics": reply(request, HTTP_OK, "OK", report())
        default: reply(request, HTTP_NOTFOUND, "Not Found", "There is / and there is /statistics.\n")
        }
        notHandedOver += 1
        if notHandedOver == HTTPHost.batchSize {
            handOver()
        } else if notHandedOver == 1 {
            // The rest of a batch that does not fill up must not wait for ever.
            handOverTimer?.nextFire = .now + .milliseconds(20)
        }
    }

    private func path(of request: OpaquePointer) -> String {
        guard let uri = evhttp_request_get_evhttp_uri(request), let path = evhttp_uri_get_path(uri) else { return "" }
        return String(cString: path)
    }

    private func reply(_ request: OpaquePointer, _ code: Int32, _ reason: String, _ text: String) {
        var text = text
        text.withUTF8 { _ = evbuffer_add(body, $0.baseAddress, $0.count) }
        evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", "text/plain; charset=utf-8")
        evhttp_send_reply(request, code, reason, body)
    }

    private func handOver() {
        guard notHandedOver > 0 else { return }
        inbox.hand(Inbox.Batch(host: number, requests: notHandedOver, handedOverAt: .now))
        notHandedOver = 0
    }
}

/// Called by libevent, on the loop's thread, for every request that is complete.
private func answerRequest(_ request: OpaquePointer?, _ context: UnsafeMutableRawPointer?) {
    guard let request, let context else { return }
    Unmanaged<HTTPHost>.fromOpaque(context).takeUnretainedValue().answer(request)
}
