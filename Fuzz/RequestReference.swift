// What a request is, by a plain definition: the parser of EventLoopHTTP must read the same. Used by the fuzzer and by the tests, which link to it.
// Slow, and written without a look at the parser: arrays, splits and whole lines.

/// A request as the definition reads it.
struct PlainRequest: Equatable {
    var method: [UInt8]
    /// Path and query.
    var path: [UInt8]
    var fields: Int
    var body: [UInt8]
    var keepsAlive: Bool
}

/// What a connection's bytes are.
struct PlainReading: Equatable {
    var requests: [PlainRequest] = []
    /// What follows the requests is refused; otherwise more may come.
    var isRefused = false
}

private struct Wrong: Error {}
private struct Incomplete: Error {}

private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }
private func lowercased(_ text: [UInt8]) -> [UInt8] { text.map { (65...90).contains($0) ? $0 + 32 : $0 } }
private let alphanumeric = bytes("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
private let tokenBytes = Set(alphanumeric + bytes("!#$%&'*+-.^_`|~"))
private let hostBytes = Set(alphanumeric + bytes("-._~%!$&'()*+;=:[]"))
private let digits = Set(bytes("0123456789"))
/// Of an address in brackets.
private let addressBytes = Set(bytes("0123456789abcdefABCDEF:."))

private func trimmed(_ text: [UInt8]) -> [UInt8] {
    var text = text[...]
    while let first = text.first, first == 32 || first == 9 { text = text.dropFirst() }
    while let last = text.last, last == 32 || last == 9 { text = text.dropLast() }
    return Array(text)
}

/// Reads what `plainReading` says of `input`.
func plainReading(_ input: [UInt8], headLimit: Int, bodyLimit: Int) -> PlainReading {
    var reading = PlainReading()
    var rest = input
    do {
        while true {  // ends: each turn takes a request, or throws
            reading.requests.append(try takeRequest(&rest, headLimit, bodyLimit))
        }
    } catch is Wrong {
        reading.isRefused = true
    } catch {}
    return reading
}

/// The next line, whose end must be CRLF.
private func takeLine(_ rest: inout [UInt8], limit: Int) throws -> [UInt8] {
    guard let end = rest.firstIndex(of: 10) else { throw rest.count > limit ? Wrong() : Incomplete() as any Error }
    if end + 1 > limit || end == 0 || rest[end - 1] != 13 { throw Wrong() }
    defer { rest.removeFirst(end + 1) }
    return Array(rest[..<(end - 1)])
}

private func takeRequest(_ rest: inout [UInt8], _ headLimit: Int, _ bodyLimit: Int) throws -> PlainRequest {
    var empty = 0
    while rest.starts(with: [13, 10]) {
        rest.removeFirst(2)
        empty += 1
        if empty > 4 { throw Wrong() }
    }
    let size = rest.count
    func left() -> Int { headLimit - (size - rest.count) }
    let first = try takeLine(&rest, limit: headLimit).split(separator: 32, omittingEmptySubsequences: false).map(Array.init)
    guard first.count == 3, !first[0].isEmpty, first[0].allSatisfy(tokenBytes.contains) else { throw Wrong() }
    guard first[2] == bytes("HTTP/1.0") || first[2].count == 8 && first[2].starts(with: bytes("HTTP/1.")) && digits.contains(first[2][7])
    else { throw Wrong() }
    let isOld = first[2] == bytes("HTTP/1.0")
    let path = try readTarget(first[1], first[0])
    var fields: [(name: [UInt8], value: [UInt8])] = []
    while true {  // ends: with the head, or throws
        let line = try takeLine(&rest, limit: left())
        if line.isEmpty { break }
        fields.append(try readField(line))
        if fields.count > 1_000 { throw Wrong() }
        // Refused as soon as they come.
        if fields.count(where: { $0.name == bytes("host") }) > 1 { throw Wrong() }
        try checkField(fields[fields.count - 1], fields.dropLast())
    }
    func values(_ name: String) -> [[UInt8]] { fields.filter { $0.name == bytes(name) }.map(\.value) }
    let (codings, lengths) = (values("transfer-encoding"), values("content-length"))
    if values("host").isEmpty && !isOld { throw Wrong() }
    if !codings.isEmpty && (isOld || !lengths.isEmpty || codings != [codings[0]] || lowercased(codings[0]) != bytes("chunked")) {
        throw Wrong()
    }
    if !isOld && values("expect").contains(where: { lowercased($0) != bytes("100-continue") }) { throw Wrong() }
    let options = values("connection").flatMap { $0.split(separator: 44).map { lowercased(trimmed(Array($0))) } }
    let keepsAlive = !options.contains(bytes("close")) && (!isOld || options.contains(bytes("keep-alive")))
    let body: [UInt8]
    if codings.isEmpty {
        let length = try lengths.first.map { try number($0, radix: 10) } ?? 0
        if length > bodyLimit { throw Wrong() }
        if rest.count < length { throw Incomplete() }
        body = Array(rest.prefix(length))
        rest.removeFirst(length)
    } else {
        body = try takeChunks(&rest, headLimit, bodyLimit)
    }
    return PlainRequest(method: first[0], path: path, fields: fields.count, body: body, keepsAlive: keepsAlive)
}

private func number(_ text: [UInt8], radix: Int) throws -> Int {
    guard let number = Int(String(decoding: text, as: UTF8.self), radix: radix) else { throw Wrong() }
    return number
}

private func readTarget(_ target: [UInt8], _ method: [UInt8]) throws -> [UInt8] {
    if method == bytes("CONNECT") || target.isEmpty || target.contains(where: { $0 <= 32 || $0 == 127 || $0 == 35 }) { throw Wrong() }
    if String(validating: target, as: UTF8.self) == nil { throw Wrong() }
    if target[0] == 47 { return target }
    if target == bytes("*") && method == bytes("OPTIONS") { return target }
    for scheme in ["http://", "https://"] where lowercased(target).starts(with: bytes(scheme)) {
        let rest = Array(target.dropFirst(scheme.utf8.count))
        let host = Array(rest.prefix { $0 != 47 && $0 != 63 })
        if host.isEmpty || !isHost(host) { throw Wrong() }
        let path = Array(rest.dropFirst(host.count))
        return path.first == 47 ? path : [47] + path
    }
    throw Wrong()
}

private func isHost(_ host: [UInt8]) -> Bool {
    if !host.allSatisfy(hostBytes.contains) { return false }
    var rest = host[...]
    if rest.first == 91 {
        guard let end = rest.firstIndex(of: 93) else { return false }
        let address = rest[..<end].dropFirst()
        if address.isEmpty || !address.allSatisfy(addressBytes.contains) { return false }
        rest = rest[(end + 1)...]
        if let next = rest.first, next != 58 { return false }
    }
    // A port without a host.
    if host.first == 58 { return false }
    if rest.contains(91) || rest.contains(93) { return false }
    guard let colon = rest.firstIndex(of: 58) else { return true }
    return rest[(colon + 1)...].allSatisfy(digits.contains)
}

private func readField(_ line: [UInt8]) throws -> (name: [UInt8], value: [UInt8]) {
    guard let colon = line.firstIndex(of: 58), colon > 0, line[..<colon].allSatisfy(tokenBytes.contains) else { throw Wrong() }
    let value = line[(colon + 1)...]
    if value.contains(where: { $0 < 32 && $0 != 9 || $0 == 127 }) { throw Wrong() }
    return (lowercased(Array(line[..<colon])), trimmed(Array(value)))
}

/// What is wrong with a field by itself, or after those before.
private func checkField(_ field: (name: [UInt8], value: [UInt8]), _ before: ArraySlice<(name: [UInt8], value: [UInt8])>) throws {
    if field.name == bytes("host") && !isHost(field.value) { throw Wrong() }
    if field.name == bytes("content-length") {
        if before.contains(where: { $0.name == field.name }) || field.value.isEmpty || !field.value.allSatisfy(digits.contains) {
            throw Wrong()
        }
    }
    if field.name == bytes("transfer-encoding") {
        let codings = (before.filter { $0.name == field.name } + [field])
            .flatMap { $0.value.split(separator: 44, omittingEmptySubsequences: false).map { lowercased(trimmed(Array($0))) } }
        if codings.contains([]) || codings.count(where: { $0 == bytes("chunked") }) > 1 { throw Wrong() }
    }
}

private func takeChunks(_ rest: inout [UInt8], _ headLimit: Int, _ bodyLimit: Int) throws -> [UInt8] {
    var (body, overhead): ([UInt8], Int) = ([], 0)
    while true {  // ends: with the last chunk, or throws
        let line = try takeLine(&rest, limit: 1_024)
        let size = Array(line.prefix { Set(bytes("0123456789abcdefABCDEF")).contains($0) })
        let rest2 = Array(line.dropFirst(size.count))
        if size.isEmpty || size.count > 16 { throw Wrong() }
        if !rest2.isEmpty {
            if trimmed(rest2).first != 59 || rest2.contains(where: { $0 < 32 && $0 != 9 || $0 == 127 }) { throw Wrong() }
            overhead += rest2.count
            if overhead > headLimit { throw Wrong() }
        }
        let count = try number(size, radix: 16)
        if count > bodyLimit - body.count { throw Wrong() }
        if count == 0 { break }
        body += rest.prefix(count)
        if rest.count > count && rest[count] != 13 || rest.count > count + 1 && rest[count + 1] != 10 { throw Wrong() }
        if rest.count < count + 2 { throw Incomplete() }
        rest.removeFirst(count + 2)
    }
    var trailers = 0
    while true {  // ends: with the trailers, or throws
        let line = try takeLine(&rest, limit: headLimit)
        if line.isEmpty { return body }
        (overhead, trailers) = (overhead + line.count, trailers + 1)
        if overhead > headLimit || trailers > 1_000 { throw Wrong() }
        _ = try readField(line)
    }
}
