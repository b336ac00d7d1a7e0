// libevent's HTTP server on the loop of a thread. Tasks answer its requests.
//
//   evhttp-server [PORT]       on 127.0.0.1; ends with SIGTERM or SIGINT, when all requests are answered; with a second one at once

import CLibevent
import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@main
enum Program {
    static func main() throws {
        // evhttp writes to connections that the client may have closed.
        signal(SIGPIPE, SIG_IGN)
        let port = CommandLine.arguments.dropFirst().first.flatMap { UInt16($0) } ?? 8080
        let thread = try RunLoopThread(
            name: "http", drainLimit: .seconds(10),
            setup: { loop in try Server(on: loop, port: port) },
            drain: { _, server in server.stopListening() },
            teardown: { _, server in server.free() })

        let loop = RunLoop.current
        let sources = try [SIGTERM, SIGINT].map { try RunLoop.SignalSource(signal: $0) { _, _ in loop.stop() } }
        for source in sources { loop.add(source) }
        loop.run()
        // The server drains. From now on, either signal ends the process at once.
        for source in sources { source.invalidate() }
        thread.stop()
        thread.join()
    }
}

struct CannotListen: Error { let port: UInt16 }

/// evhttp on a loop. It stays on the loop's thread.
final class Server {
    private let loop: RunLoop
    private let http: OpaquePointer
    private let listener: OpaquePointer
    private var isDraining = false

    init(on loop: RunLoop, port: UInt16) throws {
        guard let http = loop.withEventBase({ evhttp_new($0) }) else { throw CannotListen(port: port) }
        guard let listener = evhttp_bind_socket_with_handle(http, "127.0.0.1", port) else {
            evhttp_free(http)
            throw CannotListen(port: port)
        }
        (self.loop, self.http, self.listener) = (loop, http, listener)
        evhttp_set_gencb(http, receive, Unmanaged.passUnretained(self).toOpaque())
    }

    /// From now on, evhttp has only the connections that it has.
    func stopListening() {
        isDraining = true
        evhttp_del_accept_socket(http, listener)
    }

    func free() { evhttp_free(http) }

    fileprivate func answer(_ request: OpaquePointer) {
        let path = evhttp_request_get_uri(request).map { String(cString: $0) } ?? "/"
        let exchange = Exchange(request, on: loop, endsConnection: isDraining)
        Task { exchange.answer(await page(for: path)) }
    }
}

/// libevent calls this on the loop's thread, for every complete request.
private func receive(_ request: OpaquePointer?, _ server: UnsafeMutableRawPointer?) {
    Unmanaged<Server>.fromOpaque(server!).takeUnretainedValue().answer(request!)
}

/// The work of the server, on whatever thread.
private func page(for path: String) async -> String {
    if path == "/slow" { try? await Task.sleep(for: .milliseconds(500)) }
    return "You asked for \(path).\n"
}
