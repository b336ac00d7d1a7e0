// The bytes of a response's head.

#if HTTP

internal import HTTPTypes

/// Why a response cannot be sent: the handler's mistake.
struct UnsendableResponse: Error, CustomStringConvertible {
    let description: String
}

/// How the end of the body is known.
enum BodyFraming {
    case length(Int)
    case chunks
    /// The end of the connection.
    case end
    /// There is none, and nothing is said of it.
    case none
}

enum ResponseHead {
    /// Appends the head. Fields that say where the message ends are the server's, whatever the handler has set.
    static func append(
        _ head: HTTPResponse, _ framing: BodyFraming, connection: StaticString?, date: [UInt8], to bytes: inout [UInt8]
    ) throws(UnsendableResponse) {
        let status = head.status
        bytes.append("HTTP/1.1 ")
        append(number: status.code, to: &bytes)
        bytes.append(.space)
        let phraseStart = bytes.count
        bytes.append(contentsOf: status.reasonPhrase.utf8)
        if !bytes[phraseStart...].allSatisfy(\.isFieldText) {
            throw UnsendableResponse(description: "the reason phrase has a control character")
        }
        bytes.append("\r\n")
        var hasDate = false
        for field in head.headerFields {
            switch field.name.canonicalName {
            case "content-length", "transfer-encoding", "connection", "keep-alive": continue
            case "date": hasDate = true
            default: break
            }
            try append(field, to: &bytes)
        }
        if !hasDate { bytes.append(contentsOf: date) }
        switch framing {
        case .length(let length):
            bytes.append("Content-Length: ")
            append(number: length, to: &bytes)
            bytes.append("\r\n")
        case .chunks: bytes.append("Transfer-Encoding: chunked\r\n")
        case .end, .none: break
        }
        if let connection {
            bytes.append("Connection: ")
            bytes.append(connection)
            bytes.append("\r\n")
        }
        bytes.append("\r\n")
    }

    private static func append(_ field: HTTPField, to bytes: inout [UInt8]) throws(UnsendableResponse) {
        // A name is a token: its type sees to that.
        bytes.append(contentsOf: field.name.rawName.utf8)
        bytes.append(": ")
        let isValid = field.withUnsafeBytesOfValue { value in
            bytes.append(contentsOf: value)
            return value.allSatisfy(\.isFieldText)
        }
        if !isValid { throw UnsendableResponse(description: "the field \(field.name) has a control character") }
        bytes.append("\r\n")
    }

    private static func append(number: Int, to bytes: inout [UInt8]) {
        if number >= 10 { append(number: number / 10, to: &bytes) }
        bytes.append(UInt8(ascii: "0") + UInt8(number % 10))
    }

    /// The whole answer to a request that is refused.
    static func refusal(_ refusal: Refusal, isHead: Bool, date: [UInt8]) -> [UInt8] {
        let status = HTTPResponse.Status(code: refusal.status, reasonPhrase: phrase(refusal.status))
        let text = "\(status): \(refusal.reason)\n"
        var bytes: [UInt8] = []
        let head = HTTPResponse(status: status, headerFields: [.contentType: "text/plain; charset=utf-8"])
        do {
            try append(head, .length(text.utf8.count), connection: "close", date: date, to: &bytes)
        } catch { preconditionFailure("\(error) in a constant") }
        if !isHead { bytes.append(contentsOf: text.utf8) }
        return bytes
    }

    private static func phrase(_ status: Int) -> String {
        switch status {
        case 400: "Bad Request"
        case 408: "Request Timeout"
        case 413: "Content Too Large"
        case 414: "URI Too Long"
        case 417: "Expectation Failed"
        case 431: "Request Header Fields Too Large"
        case 501: "Not Implemented"
        default: "HTTP Version Not Supported"
        }
    }
}

extension [UInt8] {
    mutating func append(_ text: StaticString) {
        append(contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }
}

#endif
