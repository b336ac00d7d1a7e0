// The request line and the fields.

#if HTTP

extension RequestParser {
    /// Reads lines as they come, so that a head in many pieces is not read again with each. Returns the length of a whole head.
    mutating func readHead(_ bytes: UnsafeRawBufferPointer) throws(Refusal) -> Int? {
        while let end = bytes.offset(of: .lineFeed, from: scanned) {  // ends: with the head, or with the bytes
            scanned = end + 1
            if scanned > limits.head { throw tooLong }
            guard end > lineStart, bytes[end - 1] == .carriageReturn else { throw Self.bareLineFeed }
            let text = lineStart..<end - 1
            lineStart = scanned
            guard line != nil else {
                line = try RequestLine(bytes, text)
                continue
            }
            if text.isEmpty { return try finishHead(bytes, scanned) }
            line?.fieldCount += 1
            if let count = line?.fieldCount, count > Self.fieldLimit { throw Refusal(431, "more than \(Self.fieldLimit) fields") }
            let (name, value) = try Self.splitField(bytes.part(text.lowerBound, text.upperBound))
            try framing.note(name, value)
        }
        scanned = bytes.count
        if scanned > limits.head { throw tooLong }
        return nil
    }

    private var tooLong: Refusal {
        line == nil
            ? Refusal(414, "the target is longer than \(limits.head) bytes")
            : Refusal(431, "the head is longer than \(limits.head) bytes")
    }

    private mutating func finishHead(_ bytes: UnsafeRawBufferPointer, _ length: Int) throws(Refusal) -> Int {
        guard let line else { preconditionFailure("a head begins with a line") }
        try framing.check(isOld: line.isOld)
        head = ReceivedHead([UInt8](bytes.prefix(length)), line, isSecure: limits.isSecure)
        (lineStart, scanned) = (0, 0)
        return length
    }

    /// Name and value of a field.
    static func splitField(
        _ line: UnsafeRawBufferPointer
    ) throws(Refusal) -> (name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer) {
        guard let colon = line.offset(of: .colon, from: 0) else { throw Refusal(400, "a field has no colon") }
        let name = line.part(0, colon)
        guard !name.isEmpty else { throw Refusal(400, "a field has no name") }
        // Also a space before the colon, and a line that continues the one before.
        for byte in name where !byte.isToken { throw Refusal(400, "a field's name has a character that names do not have") }
        let value = line.part(colon + 1, line.count)
        for byte in value where !byte.isFieldText { throw Refusal(400, "a field's value has a control character") }
        return (name, value.trimmed)
    }
}

extension RequestLine {
    /// Reads `METHOD target HTTP/1.1` at `range`.
    init(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) throws(Refusal) {
        let first = bytes.part(0, range.upperBound).offset(of: .space, from: range.lowerBound)
        guard let first, first > range.lowerBound, bytes.part(range.lowerBound, first).allSatisfy(\.isToken) else {
            throw Refusal(400, "the request does not begin with a method and a space")
        }
        method = range.lowerBound..<first
        guard let second = bytes.part(0, range.upperBound).offset(of: .space, from: first + 1) else {
            throw Refusal(400, "the request has no version")
        }
        try readVersion(bytes.part(second + 1, range.upperBound))
        let name = bytes.part(range.lowerBound, first)
        isHead = name.count == 4 && name.elementsEqual("HEAD".utf8)
        try readTarget(bytes, first + 1..<second)
        end = range.upperBound + 2
    }

    private mutating func readVersion(_ text: UnsafeRawBufferPointer) throws(Refusal) {
        guard text.count == 8, text.prefix(5).elementsEqual("HTTP/".utf8), text[5].isDigit, text[6] == UInt8(ascii: "."), text[7].isDigit
        else { throw Refusal(400, "the request has no version such as HTTP/1.1 behind one space") }
        switch text[5] {
        case UInt8(ascii: "0"): throw Refusal(400, "HTTP/0.9 is not served")
        case UInt8(ascii: "1"): isOld = text[7] == UInt8(ascii: "0")
        default: throw Refusal(505, "only HTTP/1.1 and HTTP/1.0 are served")
        }
    }

    private mutating func readTarget(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) throws(Refusal) {
        let target = bytes.part(range.lowerBound, range.upperBound)
        guard !target.isEmpty, target.allSatisfy(\.isTarget) else {
            throw Refusal(400, "the target is empty, or has a character that targets do not have")
        }
        if target.contains(where: { $0 >= 0x80 }), String(validating: target, as: UTF8.self) == nil {
            throw Refusal(400, "the target is no text")
        }
        let method = bytes.part(method.lowerBound, method.upperBound)
        if method.elementsEqual("CONNECT".utf8) { throw Refusal(501, "this is no proxy") }
        path = range
        if target[0] == .slash { return }
        if target.count == 1, target[0] == UInt8(ascii: "*") {
            if method.elementsEqual("OPTIONS".utf8) { return }
            throw Refusal(400, "only OPTIONS has the target *")
        }
        try readAbsolute(bytes, range)
    }

    /// `http://host:port/path?query`
    private mutating func readAbsolute(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) throws(Refusal) {
        let target = bytes.part(range.lowerBound, range.upperBound)
        let scheme: Int
        if target.count > 7, target.part(0, 7).equals("http://") {
            scheme = 7
        } else if target.count > 8, target.part(0, 8).equals("https://") {
            scheme = 8
        } else {
            throw Refusal(400, "the target is neither a path nor a URL of http or https")
        }
        let rest = target.part(scheme, target.count)
        let length = rest.firstIndex { $0 == .slash || $0 == UInt8(ascii: "?") } ?? rest.count
        guard length > 0, rest.part(0, length).isAuthority else { throw Refusal(400, "the target's host is none") }
        authority = range.lowerBound + scheme..<range.lowerBound + scheme + length
        path = range.lowerBound + scheme + length..<range.upperBound
    }
}

#endif
