// libevent's own HTTP server on a run loop, beside the loop's other work.
//
// Lifecycle of the evhttp: made and freed by its host, on the loop's thread. It owns the listening socket and
// every connection. Its events are on the loop's event base, which ends with the thread, so the thread's
// teardown must free it.
// Lifecycle of the host: `open` makes it, and its thread keeps it until `close`. evhttp calls back with an
// unretained pointer to it, which is safe because evhttp_free comes first.
// Lifecycle of a request: evhttp owns it. A host that answers later may use it until it sends the reply, or until `close`.

import CLibevent
import EventLoop

final class HTTPHost {
    /// 0, 1, 2…, as in the name of its thread, "http-0".
    let number: Int
    let loop: RunLoop
    let counters: HostCounters
    let pages: Pages
    private let inbox: Inbox?
    let http: OpaquePointer
    /// Nil once the host accepts no more connections.
    var listener: OpaquePointer?
    var acceptTimer: RunLoop.Timer?
    /// Empty between requests: evhttp_send_reply takes its contents.
    private let body: OpaquePointer
    /// The open connections that have made a request, and whether one of theirs is in progress: read, and its answer not yet written.
    private var connections: [OpaquePointer: Bool] = [:]
    /// The requests that a timer answers, with their timers.
    var slowRequests: [Int: SlowRequest] = [:]
    /// Nil before `stop()`.
    var drain: Drain?
    private var notHandedOver: UInt64 = 0
    private var handOverTimer: RunLoop.Timer?

    private static let batchSize: UInt64 = 256

    /// On the loop's thread.
    static func open(
        number: Int, loop: RunLoop, listeningOn descriptor: Int32, counters: HostCounters, inbox: Inbox?, pages: Pages
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
        // "Makes an HTTP server accept connections on the specified socket" (event2/http.h); NULL on failure. evhttp_free and
        // evhttp_del_accept_socket close the socket.
        guard let listener = evhttp_accept_socket_with_handle(http, descriptor) else {
            evbuffer_free(body)
            evhttp_free(http)
            throw DemoError(sentence: "libevent does not accept the listening socket")
        }
        return HTTPHost(
            number: number, loop: loop, http: http, listener: listener, body: body, counters: counters, inbox: inbox, pages: pages)
    }

    private init(
        number: Int, loop: RunLoop, http: OpaquePointer, listener: OpaquePointer, body: OpaquePointer, counters: HostCounters,
        inbox: Inbox?, pages: Pages
    ) {
        (self.number, self.loop, self.http, self.listener, self.body) = (number, loop, http, listener, body)
        (self.counters, self.inbox, self.pages) = (counters, inbox, pages)
        let context = Unmanaged.passUnretained(self).toOpaque()
        evhttp_set_gencb(http, requestArrived, context)
        evhttp_set_bevcb(http, connectionArrived, context)
        counters.noteThread()
        prepareForShortage()
        if inbox != nil { makeHandOverTimer() }
    }

    /// Called last, on the loop's thread. Closes the listener and the connections, and delivers the rest. Requests in progress get no
    /// answer: draining has waited for them.
    func close() {
        counters.unanswered.set(counters.inProgress.value)
        // First: evhttp_free frees the requests that these would answer.
        forgetSlowRequests()
        drain?.end()
        acceptTimer?.invalidate()
        ListenerShortage.forget(http)
        evhttp_free(http)
        evbuffer_free(body)
        handOverTimer?.invalidate()
        handOver()
    }

    // MARK: Requests

    fileprivate func answer(_ request: OpaquePointer) {
        begin(request)
        respond(to: request)
    }

    /// Sends the answer. evhttp owns the request again.
    func reply(_ request: OpaquePointer, _ content: Content) {
        let headers = evhttp_request_get_output_headers(request)
        evhttp_add_header(headers, "Content-Type", content.type)
        evhttp_add_header(headers, "Cache-Control", "no-store")
        evhttp_add_header(headers, "X-Content-Type-Options", "nosniff")
        if let policy = content.policy { evhttp_add_header(headers, "Content-Security-Policy", policy) }
        // evhttp closes the connection after this answer.
        if drain != nil { evhttp_add_header(headers, "Connection", "close") }
        var text = content.text
        text.withUTF8 { _ = evbuffer_add(body, $0.baseAddress, $0.count) }
        evhttp_send_reply(request, content.code, content.reason, body)
    }

    private func begin(_ request: OpaquePointer) {
        let context = Unmanaged.passUnretained(self).toOpaque()
        counters.requests.add(1)
        counters.inProgress.add(1)
        evhttp_request_set_on_complete_cb(request, requestCompleted, context)
        guard let connection = evhttp_request_get_connection(request) else { return }
        if connections.updateValue(true, forKey: connection) == nil {
            counters.connections.add(1)
            evhttp_connection_set_closecb(connection, connectionClosed, context)
        }
        if inbox != nil { countForInbox() }
    }

    /// The answer has been written to the socket.
    fileprivate func complete(_ request: OpaquePointer) {
        counters.inProgress.add(-1)
        if let connection = evhttp_request_get_connection(request) { connections[connection] = false }
    }

    fileprivate func closed(_ connection: OpaquePointer) {
        guard let wasInProgress = connections.removeValue(forKey: connection) else { return }
        counters.connections.add(-1)
        // The client has disconnected before its answer was written, so `complete` is not called for it.
        if wasInProgress { counters.inProgress.add(-1) }
    }

    // MARK: Reports to the inbox

    private func makeHandOverTimer() {
        // A timer without a date, so that an idle server does not wake up.
        let here = LoopBound(self)
        let timer = RunLoop.Timer.onDemand(label: "hand over") { _ in here.value.handOver() }
        timer.tolerance = .milliseconds(5)
        loop.add(timer)
        handOverTimer = timer
    }

    private func countForInbox() {
        notHandedOver += 1
        if notHandedOver == HTTPHost.batchSize {
            handOver()
        } else if notHandedOver == 1 {
            // An incomplete batch must not wait forever.
            handOverTimer?.nextFire = .now + .milliseconds(20)
        }
    }

    private func handOver() {
        guard notHandedOver > 0 else { return }
        inbox?.hand(Inbox.Batch(host: number, requests: notHandedOver, handedOverAt: .now))
        notHandedOver = 0
    }
}

private func host(_ context: UnsafeMutableRawPointer) -> HTTPHost { Unmanaged.fromOpaque(context).takeUnretainedValue() }

/// libevent calls this on the loop's thread for every complete request.
private func requestArrived(_ request: OpaquePointer?, _ context: UnsafeMutableRawPointer?) {
    if let request, let context { host(context).answer(request) }
}

/// "… called on the completion of the request after the output data has been written and before the evhttp_request object is destroyed"
/// (event2/http.h).
private func requestCompleted(_ request: OpaquePointer?, _ context: UnsafeMutableRawPointer?) {
    if let request, let context { host(context).complete(request) }
}

private func connectionClosed(_ connection: OpaquePointer?, _ context: UnsafeMutableRawPointer?) {
    if let connection, let context { host(context).closed(connection) }
}

/// evhttp asks for the bufferevent of a new connection; NULL means that it makes one itself.
private func connectionArrived(_ base: OpaquePointer?, _ context: UnsafeMutableRawPointer?) -> OpaquePointer? {
    if let context { host(context).accepted() }
    return nil
}
