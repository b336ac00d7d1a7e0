// Prints what a URL has: an HTTP/1.1 client over TLS.
//
//   https-get HOST [PORT [PATH [CA-FILE]]]      443, / and the system's certificates by default

import EventLoop
import EventLoopStreams
import EventLoopTLS

@main
enum HTTPSGet {
    static func main() async throws {
        RunLoop.adoptAsyncMain()
        let words = Array(CommandLine.arguments.dropFirst())
        guard let host = words.first, words.count < 5, let port = words.count > 1 ? UInt16(words[1]) : 443 else {
            return print("usage: https-get HOST [PORT [PATH [CA-FILE]]]")
        }
        let client = TLSClient(
            trustedCertificates: words.count > 3 ? words[3] : nil, applicationProtocols: ["http/1.1"])
        let stream = try await ByteStream.connect(host: host, port: port, on: .main)
        try await stream.startTLS(client)
        let response = try await get(words.count > 2 ? words[2] : "/", of: host, over: stream)
        stream.closeAfterWriting()
        let output = try ByteStream(reading: 0, writing: 1, on: .main)
        try await output.write("\(response.status) over \(stream.tlsVersion ?? "")\n")
        try await output.write(response.body)
        try await output.finishWriting()
    }

    struct BadResponse: Error {}

    static func get(_ path: String, of host: String, over stream: ByteStream) async throws -> (status: Int, body: [UInt8]) {
        try await stream.write("GET \(path) HTTP/1.1\r\nHost: \(host)\r\nConnection: close\r\n\r\n")
        var lines = stream.lines(limit: 8_192).makeAsyncIterator()
        // HTTP/1.1 200 OK
        let words = try await lines.next()?.split(separator: " ") ?? []
        guard words.count > 1, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else { throw BadResponse() }
        var headers: [String: String] = [:]
        while let line = try await lines.next(), !line.isEmpty {
            guard let colon = line.firstIndex(of: ":"), headers.count < 100 else { throw BadResponse() }
            headers[line[..<colon].lowercased()] = line[line.index(after: colon)...].filter { $0 != " " }
        }
        let limit = 64 << 20
        if headers["transfer-encoding"]?.lowercased() == "chunked" { return (status, try await chunks(of: stream, limit: limit)) }
        guard let length = headers["content-length"] else {
            var body: [UInt8] = []
            // The end is the server's close_notify: a connection that is cut throws.
            while let bytes = try await stream.read() {
                body += bytes
                if body.count > limit { throw BadResponse() }
            }
            return (status, body)
        }
        guard let count = Int(length), (0...limit).contains(count) else { throw BadResponse() }
        return (status, try await stream.read(exactly: count))
    }

    /// Each chunk follows its size in hexadecimal; the last one is empty.
    private static func chunks(of stream: ByteStream, limit: Int) async throws -> [UInt8] {
        var body: [UInt8] = []
        var lines = stream.lines(limit: 1_024).makeAsyncIterator()
        while let line = try await lines.next() {
            guard let size = Int(line.prefix { $0 != ";" }, radix: 16), (0...(limit - body.count)).contains(size) else { break }
            if size == 0 { return body }
            body += try await stream.read(exactly: size)
            guard try await lines.next() == "" else { break }
        }
        throw BadResponse()
    }
}
