// The entry point of the fuzzer for the requests of EventLoopHTTP. Scripts/fuzz compiles it together with the parser only.
//
// The first bytes of an input say how the rest is split. Read as a whole, in pieces, and by a plain definition, the rest must give the same
// requests, and be refused or not. Each piece is in memory of exactly its size, so that AddressSanitizer notices a byte read beyond it.

/// Stands for the server's class, which makes an HTTPRequest of it.
final class ReceivedHead: Sendable {
    let bytes: [UInt8]
    let line: RequestLine
    init(_ bytes: [UInt8], _ line: RequestLine, isSecure: Bool) { (self.bytes, self.line) = (bytes, line) }
}

private let limits = RequestParser.Limits(head: 512, body: 300)

private func plain(_ head: ReceivedHead, _ body: [UInt8], _ keepsAlive: Bool) -> PlainRequest {
    let path = Array(head.bytes[head.line.path])
    return PlainRequest(
        method: Array(head.bytes[head.line.method]), path: head.line.authority == nil || path.first == 47 ? path : [47] + path,
        fields: head.line.fieldCount, body: body, keepsAlive: keepsAlive)
}

private func read(_ input: ArraySlice<UInt8>, sizes: ArraySlice<UInt8>) -> PlainReading {
    var (reading, parser, waiting, coming, left) = (PlainReading(), RequestParser(limits), [UInt8](), input, sizes)
    while !coming.isEmpty {  // ends: each turn takes a byte
        if left.isEmpty { left = sizes }
        let size = max(left.popFirst().map(Int.init) ?? coming.count, 1)
        waiting += coming.prefix(size)
        coming = coming.dropFirst(size)
        var isWaiting = false
        while !isWaiting {  // ends: the parser waits, or refuses
            let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: waiting.count, alignment: 1)
            defer { memory.deallocate() }
            memory.copyBytes(from: waiting)
            var consumed = 0
            let step = parser.next(UnsafeRawBufferPointer(memory), consumed: &consumed)
            waiting.removeFirst(consumed)
            switch step {
            case .needsMore: isWaiting = true
            case .expectsContinue: break
            case .request(let head, let body, let keepsAlive): reading.requests.append(plain(head, body, keepsAlive))
            case .refused:
                reading.isRefused = true
                return reading
            }
        }
        precondition(waiting.count <= max(limits.head, RequestParser.chunkLineLimit), "the parser keeps more than its limit")
    }
    return reading
}

@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let input = Array(UnsafeBufferPointer(start: start, count: count))
    guard let first = input.first else { return 0 }
    let sizes = input.dropFirst().prefix(Int(first % 4))
    let text = input.dropFirst(1 + sizes.count)
    let whole = read(text, sizes: [])
    precondition(whole == read(text, sizes: sizes), "the pieces are read differently")
    precondition(whole == plainReading(Array(text), headLimit: limits.head, bodyLimit: limits.body), "the definition reads something else")
    return 0
}
