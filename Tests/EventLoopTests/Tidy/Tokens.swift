// The tokens of Swift source, for tests that read the library.

struct Token: Sendable {
    let text: String
    /// The token's first byte.
    let first: UInt8
    let line: Int
    let isName: Bool
    let isCapitalized: Bool
    /// Whether the token is the first one of its line.
    let startsLine: Bool
    /// Whether there is no space between the token and the previous one.
    let followsClosely: Bool
}

/// Works on bytes. Regular expressions take most of a minute for the library's lines in a debug build on a busy machine.
struct Lexer {
    private let bytes: [UInt8]
    private var position = 0
    private var line = 1
    private var tokens: [Token] = []
    private var startsLine = true
    private var followsClosely = false

    /// The names and the punctuation of a text, without comments. String literals contribute only their interpolated code.
    static func tokens(of text: String) -> [Token] {
        var lexer = Lexer(bytes: Array(text.utf8))
        lexer.readCode(untilParenthesis: false)
        return lexer.tokens
    }

    private init(bytes: [UInt8]) {
        self.bytes = bytes
        tokens.reserveCapacity(bytes.count / 4)
    }

    private func byte(_ offset: Int) -> UInt8 { position + offset < bytes.count ? bytes[position + offset] : 0 }

    private mutating func readCode(untilParenthesis: Bool) {
        var depth = 0
        while position < bytes.count {  // ends: the position increases
            switch bytes[position] {
            case UInt8(ascii: "\n"):
                (line, startsLine, followsClosely) = (line + 1, true, false)
                position += 1
            case UInt8(ascii: " "), UInt8(ascii: "\t"):
                followsClosely = false
                position += 1
            case UInt8(ascii: "/") where byte(1) == UInt8(ascii: "/"):
                while position < bytes.count, bytes[position] != UInt8(ascii: "\n") { position += 1 }  // ends: the position increases
            case UInt8(ascii: "/") where byte(1) == UInt8(ascii: "*"):
                skipComment()
            case UInt8(ascii: "\""):
                readLiteral()
            case UInt8(ascii: "0")...UInt8(ascii: "9"):
                // A number with its letters (0xFF), or a name, which may contain digits.
                readName(isNumber: true)
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"), UInt8(ascii: "$"), 128...:
                readName(isNumber: false)
            default:
                if untilParenthesis {
                    if bytes[position] == UInt8(ascii: "(") { depth += 1 }
                    if bytes[position] == UInt8(ascii: ")") {
                        if depth == 0 { return }
                        depth -= 1
                    }
                }
                append(position..<position + 1, isName: false)
                position += 1
            }
        }
    }

    private mutating func append(_ range: Range<Int>, isName: Bool) {
        let isCapitalized = bytes[range.lowerBound] >= UInt8(ascii: "A") && bytes[range.lowerBound] <= UInt8(ascii: "Z")
        tokens.append(
            Token(
                text: String(decoding: bytes[range], as: UTF8.self), first: bytes[range.lowerBound], line: line, isName: isName,
                isCapitalized: isCapitalized,
                startsLine: startsLine, followsClosely: followsClosely))
        (startsLine, followsClosely) = (false, true)
    }

    private mutating func readName(isNumber: Bool) {
        let start = position
        while position < bytes.count {  // ends: the position increases
            switch bytes[position] {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
                UInt8(ascii: "_"), UInt8(ascii: "$"), 128...:
                position += 1
                continue
            default: break
            }
            break
        }
        append(start..<position, isName: !isNumber)
    }

    private mutating func skipComment() {
        while position < bytes.count, !(bytes[position] == UInt8(ascii: "*") && byte(1) == UInt8(ascii: "/")) {  // ends: finite text
            if bytes[position] == UInt8(ascii: "\n") { (line, startsLine) = (line + 1, true) }
            position += 1
        }
        position += 2
        followsClosely = false
    }

    private mutating func readLiteral() {
        let quote = UInt8(ascii: "\"")
        let isLong = byte(1) == quote && byte(2) == quote
        position += isLong ? 3 : 1
        while position < bytes.count {  // ends: the position increases
            if bytes[position] == UInt8(ascii: "\\") {
                position += 2
                if bytes[position - 1] == UInt8(ascii: "(") {
                    readCode(untilParenthesis: true)
                    position += 1
                }
            } else if bytes[position] == quote && (!isLong || byte(1) == quote && byte(2) == quote) {
                position += isLong ? 3 : 1
                followsClosely = true
                return
            } else {
                if bytes[position] == UInt8(ascii: "\n") { (line, startsLine) = (line + 1, true) }
                position += 1
            }
        }
    }
}
