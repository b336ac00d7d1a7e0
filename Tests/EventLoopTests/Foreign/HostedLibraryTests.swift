// Libraries of libevent on the loop of a RunLoopThread (semantics 9.25 to 9.27, 12.10): everything that a library owes is sent before
// `teardown` frees the library.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.memory, .threads)) struct HostedLibraryTests {
    @Test func `requests of evhttp that other threads hold at the stop are answered before evhttp is freed`() throws {
        let held = Box<[HeldRequest]>([])
        let (arrived, draining) = (Gate(), Gate())
        let port = Box(UInt16(0))
        let requests = 3
        let thread = try RunLoopThread(
            name: "http", drainLimit: patience,
            setup: { loop in
                try HTTPServer(loop, port) { request in
                    let count = held.change { list in
                        list.append(request)
                        return list.count
                    }
                    if count == requests { arrived.open() }
                }
            },
            drain: { _, server in
                server.stopListening()
                draining.open()
            },
            teardown: { _, server in server.free() })
        let clients = (0..<requests).map { number in
            plainThread { try answer(to: "GET /\(number) HTTP/1.1\r\nHost: test\r\n\r\n", atPort: port.value) }
        }
        arrived.wait()
        thread.stop()
        draining.wait()
        // As tasks do: elsewhere, and long after the stop.
        for request in held.value {
            let isAccepted = thread.runLoop.perform { request.answer(String(repeating: "0123456789", count: 100_000)) }
            #expect(isAccepted)
        }
        #expect(thread.join(timeout: patience))
        for client in clients {
            let text = try client.join()
            #expect(text.hasPrefix("HTTP/1.1 200 OK\r\n") && text.hasSuffix("0123456789"), "\(text.prefix(200))")
            #expect(text.count > 1_000_000)
        }
    }

    @Test func `what the last batch writes into a bufferevent reaches the other end before teardown frees it`() throws {
        for _ in 0..<20 {
            let (near, far) = connectedSockets()
            defer { close(far) }
            evutil_make_socket_nonblocking(near)
            let event = Box<Word?>(nil)
            let thread = try RunLoopThread(
                name: "stream", drainLimit: patience,
                setup: { loop in
                    let options = Int32(BEV_OPT_CLOSE_ON_FREE.rawValue)
                    let made = try #require(loop.withEventBase { bufferevent_socket_new($0, near, options) })
                    event.value = Word(made)
                    return made
                },
                teardown: { _, made in bufferevent_free(made) })
            let stream = event.value!
            let hold = thread.hold()
            thread.stop()
            #expect(thread.runLoop.perform { bufferevent_write(stream.pointer, "last words", 10) })
            hold.release()
            #expect(thread.join(timeout: patience))
            #expect(try readToEnd(far, "the bufferevent is freed") == "last words")
        }
    }
}

// Not inherited by programs that other tests start, which would keep the connection open.
#if canImport(Glibc)
private let closingStreamType = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
#else
private let closingStreamType = SOCK_STREAM
#endif

/// A pointer of a C library that another thread passes back to the library's thread.
private struct Word: @unchecked Sendable {
    // SAFETY: used on the library's thread only.
    let pointer: OpaquePointer
    init(_ pointer: OpaquePointer) { self.pointer = pointer }
}

/// A request that was not answered yet, and the hold that keeps its server alive.
private final class HeldRequest: Sendable {
    private let request: Word
    private let hold: RunLoopThread.Hold

    init(_ request: OpaquePointer, _ loop: RunLoop) {
        self.request = Word(request)
        hold = loop.holdThread()
    }

    /// On the server's thread. The hold ends when evhttp has written the whole answer.
    func answer(_ text: String) {
        evhttp_request_set_on_complete_cb(
            request.pointer, { _, context in Unmanaged<HeldRequest>.fromOpaque(context!).takeRetainedValue().hold.release() },
            Unmanaged.passRetained(self).toOpaque())
        evhttp_add_header(evhttp_request_get_output_headers(request.pointer), "Connection", "close")
        let body = evbuffer_new()
        evbuffer_add(body, text, text.utf8.count)
        evhttp_send_reply(request.pointer, HTTP_OK, "OK", body)
        evbuffer_free(body)
    }
}

/// An evhttp on a free port of the loopback. On the thread of its loop only.
private final class HTTPServer {
    private let http: OpaquePointer
    private let listener: OpaquePointer
    private let loop: RunLoop
    private let take: (HeldRequest) -> Void

    init(_ loop: RunLoop, _ port: Box<UInt16>, _ take: @escaping (HeldRequest) -> Void) throws {
        (self.loop, self.take) = (loop, take)
        http = try #require(loop.withEventBase { evhttp_new($0) })
        listener = try #require(evhttp_bind_socket_with_handle(http, "127.0.0.1", 0))
        port.value = boundPort(evhttp_bound_socket_get_fd(listener))
        evhttp_set_gencb(
            http,
            { request, context in
                let server = Unmanaged<HTTPServer>.fromOpaque(context!).takeUnretainedValue()
                server.take(HeldRequest(request!, server.loop))
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    func stopListening() { evhttp_del_accept_socket(http, listener) }
    func free() { evhttp_free(http) }
}

private func boundPort(_ descriptor: Int32) -> UInt16 {
    var address = sockaddr_in()
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let code = withUnsafeMutableBytes(of: &address) {
        getsockname(descriptor, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), &size)
    }
    precondition(code == 0, "getsockname: errno \(errno)")
    return UInt16(bigEndian: address.sin_port)
}

/// Connects, sends `request`, and returns all that comes back.
private func answer(to request: String, atPort port: UInt16) throws -> String {
    let descriptor = socket(AF_INET, closingStreamType, 0)
    defer { close(descriptor) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(INADDR_LOOPBACK).bigEndian
    let code = withUnsafeBytes(of: &address) {
        connect(descriptor, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
    }
    precondition(code == 0, "connect: errno \(errno)")
    let bytes = Array(request.utf8)
    precondition(send(descriptor, bytes, bytes.count, 0) == bytes.count, "send: errno \(errno)")
    return try readToEnd(descriptor, "the server closes the connection")
}
