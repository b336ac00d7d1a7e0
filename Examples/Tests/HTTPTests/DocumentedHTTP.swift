// The code of docs/http.md, compiled; that of JSON is in the example http-service. The other tests run the same calls.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopHTTP
import HTTPTypes

#if HAS_COpenSSL
import EventLoopTLS
#endif

/// Adds the numbers of a form: `curl -d '1 2 3' http://127.0.0.1:8080/sum`
func startAdder(on loops: [RunLoop]) throws -> HTTPServer {
    var options = HTTPServer.Options()
    options.bodyLimit = 10_000
    return try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 8080), on: loops, options: options) { request in
        guard request.path == "/sum" else { return .text("not here\n", status: .notFound) }
        guard request.head.method == .post else {
            return .init(status: .methodNotAllowed, headerFields: [.allow: "POST"])
        }
        let numbers = String(decoding: request.body, as: UTF8.self).split(separator: " ").compactMap { Int($0) }
        return .text("\(numbers.reduce(0, &+))\n")
    }
}

#if HAS_COpenSSL
/// Asks for the certificate at each connection, so that it can be renewed while the server runs.
func startSecureServer(on loops: [RunLoop], certificate: @escaping @Sendable () -> TLSServer) throws -> HTTPServer {
    var options = HTTPServer.Options()
    options.prepareConnection = { try await $0.startTLS(certificate()) }
    return try HTTPServer(listeningOn: .ipv4(host: "0.0.0.0", port: 8443), on: loops, options: options) { request in
        .text("\(request.head.scheme ?? "")://\(request.head.authority ?? "")\(request.path)\n")
    }
}
#endif
