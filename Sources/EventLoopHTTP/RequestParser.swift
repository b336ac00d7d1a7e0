// From the bytes of a connection to requests. Strict: what RFC 9112 lets a server accept for old clients, and what two programs have read
// differently, is refused, because a proxy in front may have read the other thing.

#if HTTP

/// Why a request is refused. The connection is closed behind the answer, because nobody knows where the next request begins.
struct Refusal: Error, Equatable, Sendable {
    let status: Int
    let reason: String
    init(_ status: Int, _ reason: String) { (self.status, self.reason) = (status, reason) }
}

/// Reads one request after another. It keeps offsets into the caller's bytes while a head is not whole, and the body as far as it came.
struct RequestParser: Sendable {
    struct Limits: Sendable {
        var head: Int
        var body: Int
        var isSecure = false
    }

    enum Step {
        /// Everything that is whole was consumed.
        case needsMore
        /// The head is whole, and the client waits before it sends the body.
        case expectsContinue
        case request(ReceivedHead, body: [UInt8], keepsAlive: Bool)
        case refused(Refusal)
    }

    enum Phase: Equatable {
        case head
        case body(remaining: Int)
        case chunkLine
        case chunk(remaining: Int)
        case chunkEnd
        case trailers
    }

    let limits: Limits
    var phase = Phase.head
    /// Offset of the line that is not whole, and how far it was searched for its end.
    var lineStart = 0
    var scanned = 0
    var line: RequestLine?
    var framing = Framing()
    var head: ReceivedHead?
    var body: [UInt8] = []
    /// Bytes of chunk extensions and trailers.
    private var overhead = 0
    private var trailerCount = 0
    private var emptyLines = 0
    /// Of a request whose line was refused.
    private var beginsWithHead = false

    /// More fields than a client has, and fewer than HTTPFields holds.
    static var fieldLimit: Int { 1_000 }
    /// Size and extensions of one chunk.
    static var chunkLineLimit: Int { 1_024 }

    init(_ limits: Limits) { self.limits = limits }

    /// Whether the answer to the request that is being read has no body.
    var isHead: Bool { line?.isHead ?? beginsWithHead }

    /// Whether a part of a request has been seen.
    var hasBegun: Bool { phase != .head || scanned > 0 }

    /// Reads until something happens. `consumed` is how many of the first bytes are not needed any more; the others must be at the
    /// beginning the next time.
    mutating func next(_ bytes: UnsafeRawBufferPointer, consumed: inout Int) -> Step {
        do throws(Refusal) {
            return try read(bytes, &consumed)
        } catch {
            beginsWithHead = bytes.part(consumed, bytes.count).starts(with: "HEAD ".utf8)
            return .refused(error)
        }
    }

    private mutating func read(_ bytes: UnsafeRawBufferPointer, _ consumed: inout Int) throws(Refusal) -> Step {
        while true {  // ends: each iteration consumes something or returns
            let rest = bytes.part(consumed, bytes.count)
            switch phase {
            case .head:
                if try skipEmptyLine(rest, &consumed) { continue }
                // Half an empty line begins no request.
                if rest.count == 1, rest[0] == .carriageReturn { return .needsMore }
                guard let length = try readHead(rest) else { return .needsMore }
                consumed += length
                if let step = try beginBody(isLast: consumed == bytes.count) { return step }
            case .body(let remaining):
                append(rest, remaining, &consumed)
                let left = remaining - min(remaining, rest.count)
                phase = .body(remaining: left)
                return left == 0 ? finish() : .needsMore
            case .chunkLine:
                guard let line = try nextLine(rest, &consumed, limit: Self.chunkLineLimit, Refusal(400, "a chunk's size is too long"))
                else { return .needsMore }
                try beginChunk(line)
            case .chunk(let remaining):
                append(rest, remaining, &consumed)
                if rest.count < remaining {
                    phase = .chunk(remaining: remaining - rest.count)
                    return .needsMore
                }
                phase = .chunkEnd
            case .chunkEnd:
                if rest.count >= 1 && rest[0] != .carriageReturn || rest.count >= 2 && rest[1] != .lineFeed {
                    throw Refusal(400, "a chunk is longer than its size")
                }
                if rest.count < 2 { return .needsMore }
                consumed += 2
                phase = .chunkLine
            case .trailers:
                let tooLong = Refusal(431, "the trailers are too long")
                guard let line = try nextLine(rest, &consumed, limit: limits.head, tooLong) else { return .needsMore }
                if line.isEmpty { return finish() }
                (overhead, trailerCount) = (overhead + line.count, trailerCount + 1)
                if overhead > limits.head || trailerCount > Self.fieldLimit { throw tooLong }
                // Checked as fields are, and dropped: RFC 9110, 6.5.1, lets a recipient ignore them.
                _ = try Self.splitField(line)
            }
        }
    }

    /// RFC 9112, 2.2: a server ignores an empty line before a request, which old clients send behind a body.
    private mutating func skipEmptyLine(_ bytes: UnsafeRawBufferPointer, _ consumed: inout Int) throws(Refusal) -> Bool {
        guard scanned <= 1, bytes.count >= 2, bytes[0] == .carriageReturn, bytes[1] == .lineFeed else { return false }
        scanned = 0
        emptyLines += 1
        if emptyLines > 4 { throw Refusal(400, "empty lines instead of a request") }
        consumed += 2
        return true
    }

    /// The next line without its CRLF; nil if it is not whole yet.
    private mutating func nextLine(
        _ bytes: UnsafeRawBufferPointer, _ consumed: inout Int, limit: Int, _ tooLong: @autoclosure () -> Refusal
    ) throws(Refusal) -> UnsafeRawBufferPointer? {
        guard let end = bytes.offset(of: .lineFeed, from: scanned) else {
            scanned = bytes.count
            if bytes.count > limit { throw tooLong() }
            return nil
        }
        scanned = 0
        if end + 1 > limit { throw tooLong() }
        guard end > 0, bytes[end - 1] == .carriageReturn else { throw Self.bareLineFeed }
        consumed += end + 1
        return bytes.part(0, end - 1)
    }

    static var bareLineFeed: Refusal { Refusal(400, "a line ends without CR") }

    private mutating func append(_ bytes: UnsafeRawBufferPointer, _ limit: Int, _ consumed: inout Int) {
        let part = bytes.prefix(limit)
        if body.isEmpty { body = [UInt8](part) } else { body.append(contentsOf: part) }
        consumed += part.count
    }

    /// The head is whole: what follows it. A step if the caller is to act first.
    private mutating func beginBody(isLast: Bool) throws(Refusal) -> Step? {
        let length = try framing.bodyLength(limit: limits.body)
        if length == 0 { return finish() }
        phase = length.map { Phase.body(remaining: $0) } ?? .chunkLine
        return framing.expectsContinue && isLast ? .expectsContinue : nil
    }

    private mutating func beginChunk(_ line: UnsafeRawBufferPointer) throws(Refusal) {
        var (size, digits) = (0, 0)
        while digits < line.count, let value = line[digits].hexadecimalValue {  // ends: with the line
            digits += 1
            if digits > 16 || size > Int.max >> 4 { throw Refusal(413, "a chunk is longer than any memory") }
            size = size << 4 | Int(value)
        }
        if digits == 0 { throw Refusal(400, "a chunk has no size in hexadecimal digits") }
        let rest = line.part(digits, line.count)
        if !rest.isEmpty {
            guard rest.trimmed.first == UInt8(ascii: ";"), rest.allSatisfy(\.isFieldText) else {
                throw Refusal(400, "a chunk's size is followed by something else than an extension")
            }
            overhead += rest.count
            if overhead > limits.head { throw Refusal(400, "the extensions of the chunks are too long") }
        }
        if size > limits.body - body.count { throw Refusal(413, "the body is longer than \(limits.body) bytes") }
        phase = size == 0 ? .trailers : .chunk(remaining: size)
    }

    private mutating func finish() -> Step {
        guard let head else { preconditionFailure("a request has a head") }
        let step = Step.request(head, body: body, keepsAlive: framing.keepsAlive)
        self = RequestParser(limits)
        return step
    }
}

#endif
