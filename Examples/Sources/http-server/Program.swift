// The HTTP server of docs/http.md: JSON, a file, a sequence, and an orderly end.

import EventLoop
import EventLoopHTTP
import HTTPTypes

@main
enum Program {
    static func main() async throws {
        RunLoop.adoptAsyncMain()
        let folder = CommandLine.arguments.dropFirst().first ?? "."
        let place = CommandLine.arguments.dropFirst(2).first ?? "8080"
        let address = UInt16(place).map { RunLoop.SocketAddress.ipv4(host: "127.0.0.1", port: $0) } ?? .unix(path: place)
        // Signals are counted from here on, so this comes before the server.
        var terminations = RunLoop.main.signals(15).makeAsyncIterator()

        let server = try HTTPServer(listeningOn: address, on: [.main]) { request in
            switch request.path {
            case "/status":
                return .init(headerFields: [.contentType: "application/json"], body: .bytes(Array(#"{"status": "fine"}"#.utf8)))
            case "/manual":
                return .init(body: .file(path: folder + "/manual.html"))
            case "/ticks":
                return .init(headerFields: [.contentType: "text/event-stream"], body: .sequence(ticks()))
            default:
                return .text("\(request.path) is not here\n", status: .notFound)
            }
        }
        print("listening on \(server.localAddress)")

        _ = try await terminations.next()
        await server.shutdown()
    }

    /// An event each second, for as long as the client listens.
    static func ticks() -> AsyncThrowingStream<[UInt8], any Error> {
        AsyncThrowingStream {
            try await Task.sleep(for: .seconds(1))
            return Array("data: tick\n\n".utf8)
        }
    }
}
