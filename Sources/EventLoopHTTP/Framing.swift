// Where a request ends, and whether another follows: the fields that say so, RFC 9112, 6 and 9.

#if HTTP

/// What the fields of a head say of the message.
struct Framing: Sendable {
    private var hosts = 0
    private var length: Int?
    private var isTooLong = false
    private var isChunked = false
    private var hasUnknownCoding = false
    private var hasTransferEncoding = false
    private var closes = false
    private var staysOpen = false
    private var hasExpectation = false
    private var hasUnknownExpectation = false
    private var isOld = false

    /// Whether the client waits for `100 Continue`. A client of HTTP/1.0 does not know it.
    var expectsContinue: Bool { hasExpectation && !isOld }

    mutating func note(_ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws(Refusal) {
        switch name.count {
        case 4 where name.equals("host"): try noteHost(value)
        case 6 where name.equals("expect"):
            if value.equals("100-continue") { hasExpectation = true } else { hasUnknownExpectation = true }
        case 10 where name.equals("connection"): noteConnection(value)
        case 14 where name.equals("content-length"): try noteLength(value)
        case 17 where name.equals("transfer-encoding"): try noteTransferEncoding(value)
        default: break
        }
    }

    private mutating func noteHost(_ value: UnsafeRawBufferPointer) throws(Refusal) {
        hosts += 1
        if hosts > 1 { throw Refusal(400, "two fields Host") }
        if !value.isAuthority { throw Refusal(400, "the field Host is no host") }
    }

    private mutating func noteConnection(_ value: UnsafeRawBufferPointer) {
        value.forEachListElement { option in
            if option.equals("close") { closes = true } else if option.equals("keep-alive") { staysOpen = true }
        }
    }

    private mutating func noteLength(_ value: UnsafeRawBufferPointer) throws(Refusal) {
        // Also two equal ones: there is no reason to send them.
        if length != nil { throw Refusal(400, "two fields Content-Length") }
        guard !value.isEmpty, value.allSatisfy(\.isDigit) else { throw Refusal(400, "the field Content-Length is no number") }
        var length = 0
        for digit in value {
            let (product, isLarge) = length.multipliedReportingOverflow(by: 10)
            let (sum, isLarger) = product.addingReportingOverflow(Int(digit - UInt8(ascii: "0")))
            if isLarge || isLarger {
                isTooLong = true
                break
            }
            length = sum
        }
        self.length = length
    }

    private mutating func noteTransferEncoding(_ value: UnsafeRawBufferPointer) throws(Refusal) {
        hasTransferEncoding = true
        var (chunked, isWrong) = (isChunked ? 1 : 0, false)
        value.forEachListElement { coding in
            if coding.equals("chunked") {
                chunked += 1
            } else if coding.isEmpty {
                isWrong = true
            } else {
                hasUnknownCoding = true
            }
        }
        isChunked = chunked == 1
        if isWrong || chunked > 1 { throw Refusal(400, "the field Transfer-Encoding is no list of codings, each once") }
    }

    /// What the fields say together. Called with a whole head.
    mutating func check(isOld: Bool) throws(Refusal) {
        self.isOld = isOld
        if hosts == 0 && !isOld { throw Refusal(400, "no field Host") }
        if hasTransferEncoding {
            if length != nil { throw Refusal(400, "Content-Length beside Transfer-Encoding") }
            if isOld { throw Refusal(400, "Transfer-Encoding in HTTP/1.0") }
            if hasUnknownCoding { throw Refusal(501, "a transfer coding other than chunked") }
        }
        if hasUnknownExpectation && !isOld { throw Refusal(417, "an expectation other than 100-continue") }
    }

    /// Nil for a body in chunks.
    func bodyLength(limit: Int) throws(Refusal) -> Int? {
        if isChunked { return nil }
        if isTooLong || length ?? 0 > limit { throw Refusal(413, "the body is longer than \(limit) bytes") }
        return length ?? 0
    }

    /// RFC 9112, 9.3.
    var keepsAlive: Bool { !closes && (!isOld || staysOpen) }
}

#endif
