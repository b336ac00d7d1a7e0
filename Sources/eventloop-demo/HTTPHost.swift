// libevent's own HTTP server on a run loop, beside the loop's other work.
//
// Lifecycle of the evhttp: made and freed by its host, on the loop's thread. It owns the listening socket and
// every connection. Its events are on the loop's event base, which ends with the thread, so the thread's
// teardown must free it.
// Lifecycle of the host: `open` makes it, and the server keeps it until `close`. evhttp calls back with an
// unretained pointer to it, which is safe because evhttp_free comes first.

import CLibevent
import EventLoop

final class HTTPHost {
    /// 0, 1, 2…, as in the name of its thread, "http-0".
    let number: Int
    let loop: RunLoop
    private let http: OpaquePointer
    private let inbox: Inbox
    private let report: @Sendable () -> String
    /// Empty between requests: evhttp_send_reply takes its contents.
    private let body: OpaquePointer
    private var answered: UInt64 = 0
    private var notHandedOver: UInt64 = 0
    private var handOverTimer: RunLoop.Timer?

    private static let batchSize: UInt64 = 256

    /// On the loop's thread. - Parameter report: the text of /statistics.
    static func open(
        number: Int, loop: RunLoop, listeningOn descriptor: Int32, inbox: Inbox, report: @escaping @Sendable () -> String
    ) throws(DemoError) -> HTTPHost {
        // The base on which the loop waits in its default mode. The loop serves evhttp's events there whenever it
        // runs in that mode.
        guard let http = loop.withEventBase({ evhttp_new($0) }), let body = evbuffer_new() else {
            throw DemoError(sentence: "libevent has no memory for an HTTP server")
        }
        // libevent 2.1 takes 16 bits here, 2.2 takes 32.
        evhttp_set_allowed_methods(http, .init(EVHTTP_REQ_GET.rawValue | EVHTTP_REQ_HEAD.rawValue))
        evhttp_set_max_headers_size(http, 16 * 1024)
        evhttp_set_max_body_size(http, 16 * 1024)
        evhttp_set_timeout(http, 30)
        // "Makes an HTTP server accept connections on the specified socket" (event2/http.h); 0 on success;
        // then evhttp_free closes the socket.
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
        // A timer without a date, so that an idle server does not wake up.
        let here = LoopBound(self)
        let timer = RunLoop.Timer.onDemand(label: "hand over") { _ in here.value.handOver() }
        timer.tolerance = .milliseconds(5)
        loop.add(timer)
        handOverTimer = timer
    }

    /// Called last, on the loop's thread. Closes the listener and the connections, and delivers the rest.
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
            // An incomplete batch must not wait forever.
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

/// libevent calls this on the loop's thread for every complete request.
private func answerRequest(_ request: OpaquePointer?, _ context: UnsafeMutableRawPointer?) {
    guard let request, let context else { return }
    Unmanaged<HTTPHost>.fromOpaque(context).takeUnretainedValue().answer(request)
}
