// The head of a request as it came, checked.

#if HTTP

internal import EventLoopLibC
internal import HTTPTypes
import Synchronization

/// The bytes of a head that the parser has accepted. `HTTPRequest` is made of them when a handler asks for it.
final class ReceivedHead: Sendable {
    let bytes: [UInt8]
    let line: RequestLine
    let isSecure: Bool
    private let request = Mutex<HTTPRequest?>(nil)

    init(_ bytes: [UInt8], _ line: RequestLine, isSecure: Bool) { (self.bytes, self.line, self.isSecure) = (bytes, line, isSecure) }

    private func text(_ range: Range<Int>) -> String { String(decoding: bytes[range], as: UTF8.self) }

    /// Path and query; an absolute target without its beginning.
    var target: String {
        let path = text(line.path)
        // http://host and http://host?query have no path.
        return path.utf8.first == .slash || line.authority == nil ? path : "/" + path
    }

    /// For tests.
    var testsOnlyHasHost: Bool { makeFields().host != nil }

    var made: HTTPRequest {
        request.withLock { request in
            if let request { return request }
            let made = make()
            request = made
            return made
        }
    }

    private func make() -> HTTPRequest {
        let (fields, host) = makeFields()
        return HTTPRequest(
            // The parser has checked it: a token.
            method: HTTPRequest.Method(text(line.method))!,
            // The connection's, whatever an absolute target says: a client in the clear must not pass for one over TLS.
            scheme: isSecure ? "https" : "http",
            authority: line.authority.map(text) ?? host, path: target, headerFields: fields)
    }

    /// `Host` is the request's authority, and not among its fields: so `HTTPRequest` has it for every version of HTTP.
    private func makeFields() -> (HTTPFields, host: String?) {
        var (fields, host): (HTTPFields, String?) = (HTTPFields(), nil)
        fields.reserveCapacity(line.fieldCount)
        bytes.withUnsafeBytes { bytes in
            var start = line.end
            while let end = bytes.offset(of: .lineFeed, from: start) {  // ends: behind the last line
                // Without CR and LF.
                let field = bytes.part(start, end - 1)
                start = end + 1
                guard let colon = field.offset(of: .colon, from: 0) else { break }
                let (name, value) = (field.part(0, colon), field.part(colon + 1, field.count).trimmed)
                if name.equals("host") {
                    host = String(decoding: value, as: UTF8.self)
                    continue
                }
                // A token, as the parser has checked.
                fields.append(HTTPField(name: HTTPField.Name(String(decoding: name, as: UTF8.self))!, value: value))
            }
        }
        return (fields, host)
    }
}

#endif
