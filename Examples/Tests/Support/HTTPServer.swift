// An HTTP server on a run loop: libevent's evhttp, with the few routes that the tests ask for.
//
// Lifecycle of the evhttp: made by `init` and freed by `close`, both on the loop's thread. It owns the listener and the connections.
// Lifecycle of requests: evhttp's. It waits for the reply to a request, and `close` replies to all that are still held.

import CLibevent
public import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// On the loop's thread only.
///
/// | Path | Reply |
/// |---|---|
/// | `/bytes/N` | N bytes, each of which is the last digit of N |
/// | `/redirect/N` | a redirection to `/redirect/N-1`; at zero, the word "arrived" |
/// | `/held` | none until `answerHeld` |
/// | `/status/N` | an empty reply with the status N |
/// | any other | the word "hello" |
public final class HTTPServer {
    public let port: UInt16
    /// How many requests came, and how many were answered.
    public let requests = Box(0)
    public let answers = Box(0)
    /// The number of requests that wait for `answerHeld`.
    public let heldCount = Box(0)
    /// Called for each request, before it is answered.
    public var onRequest: ((HTTPServer) -> Void)?
    private let http: OpaquePointer
    private var listener: OpaquePointer?
    private var held: [OpaquePointer] = []

    public init(on loop: RunLoop, _ mode: RunLoop.Mode = .default) throws {
        http = loop.withEventBase(forMode: mode) { evhttp_new($0) }
        listener = evhttp_bind_socket_with_handle(http, "127.0.0.1", 0)
        guard let listener else { throw SystemFailure("evhttp_bind_socket_with_handle") }
        port = try localPort(of: evhttp_bound_socket_get_fd(listener))
        evhttp_set_timeout(http, 300)
        let context = Unmanaged.passUnretained(self).toOpaque()
        evhttp_set_gencb(
            http,
            { request, context in
                let server = Unmanaged<HTTPServer>.fromOpaque(context!).takeUnretainedValue()
                server.answer(request!)
            }, context)
    }

    /// Replies to what is held, closes the connections and the listener.
    public func close() {
        answerHeld()
        evhttp_free(http)
    }

    /// The listener is closed; connections stay.
    public func stopAccepting() {
        if let listener { evhttp_del_accept_socket(http, listener) }
        listener = nil
    }

    public func answerHeld() {
        let requests = held
        held = []
        heldCount.value = 0
        for request in requests { reply(request, text: "held") }
    }

    private func answer(_ request: OpaquePointer) {
        requests.increment()
        onRequest?(self)
        let parts = path(of: request).split(separator: "/")
        let number = parts.count > 1 ? Int(parts[1]) ?? 0 : 0
        switch parts.first {
        case "bytes": reply(request, bytes: [UInt8](repeating: UInt8(ascii: "0") + UInt8(number % 10), count: number))
        case "redirect" where number > 0:
            evhttp_add_header(evhttp_request_get_output_headers(request), "Location", "/redirect/\(number - 1)")
            reply(request, status: 302, text: "elsewhere")
        case "redirect": reply(request, text: "arrived")
        case "held":
            held.append(request)
            heldCount.value = held.count
        case "status": reply(request, status: Int32(number), text: "")
        default: reply(request, text: "hello")
        }
    }

    private func path(of request: OpaquePointer) -> String {
        guard let uri = evhttp_request_get_evhttp_uri(request), let path = evhttp_uri_get_path(uri) else { return "" }
        return String(cString: path)
    }

    private func reply(_ request: OpaquePointer, status: Int32 = HTTP_OK, text: String) {
        reply(request, status: status, bytes: Array(text.utf8))
    }

    private func reply(_ request: OpaquePointer, status: Int32 = HTTP_OK, bytes: [UInt8]) {
        let body = evbuffer_new()
        evbuffer_add(body, bytes, bytes.count)
        evhttp_send_reply(request, status, nil, body)
        evbuffer_free(body)
        answers.increment()
    }
}

extension LibraryHost where Library == HTTPServer {
    /// A server on a thread of its own.
    public static func httpServer(_ mode: RunLoop.Mode = .default) throws -> LibraryHost<HTTPServer> {
        try LibraryHost(mode, make: { try HTTPServer(on: $0, mode) }, free: { $0.close() })
    }
}
