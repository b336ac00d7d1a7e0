// A request of evhttp that is answered later.
//
// Lifecycle of the request: evhttp owns it. It is valid until evhttp reports that the answer is written, or that its connection is closed;
// both on the thread of the loop. Until then, evhttp retains the exchange, and the exchange holds the thread.

import CLibevent
import EventLoop

/// A request and the hold that keeps its server from being freed. Any thread may answer it, once.
final class Exchange: @unchecked Sendable {
    // SAFETY: `request` is used on the thread of `loop` only.
    private var request: OpaquePointer?
    private let loop: RunLoop
    private let hold: RunLoopThread.Hold

    /// On the thread of `loop`.
    init(_ request: OpaquePointer, on loop: RunLoop, endsConnection: Bool) {
        self.request = request
        self.loop = loop
        hold = loop.holdThread()
        if endsConnection { evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close") }
        let context = Unmanaged.passRetained(self).toOpaque()
        evhttp_request_set_on_complete_cb(
            request, { _, exchange in Unmanaged<Exchange>.fromOpaque(exchange!).takeUnretainedValue().answerIsWritten() }, context)
        evhttp_connection_set_closecb(
            evhttp_request_get_connection(request),
            { _, exchange in Unmanaged<Exchange>.fromOpaque(exchange!).takeUnretainedValue().connectionIsClosed() }, context)
    }

    /// Thread-safe. If the client has gone, nobody receives the answer.
    func answer(_ text: String) {
        loop.perform { [self] in
            guard let request, let body = evbuffer_new() else { return }
            evbuffer_add(body, text, text.utf8.count)
            evhttp_send_reply(request, HTTP_OK, "OK", body)
            evbuffer_free(body)
        }
    }

    private func answerIsWritten() {
        // The connection goes on without this exchange.
        evhttp_connection_set_closecb(evhttp_request_get_connection(request), nil, nil)
        end()
    }

    private func connectionIsClosed() {
        // evhttp leaves a request to us if the connection fails before the answer; otherwise it frees the request itself.
        if evhttp_request_get_connection(request) == nil { evhttp_request_free(request) }
        end()
    }

    private func end() {
        request = nil
        hold.release()
        Unmanaged.passUnretained(self).release()
    }
}
