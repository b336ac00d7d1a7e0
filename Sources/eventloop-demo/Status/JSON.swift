// Writes JSON. Text is escaped so that it is harmless in HTML and in JavaScript, too.

enum JSON {
    case text(String)
    case count(Int)
    case number(Double)
    case list([JSON])
    case object([(String, JSON)])

    var description: String {
        var result = ""
        write(to: &result)
        return result
    }

    private func write(to result: inout String) {
        switch self {
        case .text(let text): JSON.write(text, to: &result)
        case .count(let value): result += String(value)
        // Three decimals. JSON has no infinity.
        case .number(let value): result += value.isFinite ? String((value * 1000).rounded() / 1000) : "null"
        case .list(let values):
            result += "["
            for (index, value) in values.enumerated() {
                if index > 0 { result += "," }
                value.write(to: &result)
            }
            result += "]"
        case .object(let members):
            result += "{"
            for (index, member) in members.enumerated() {
                if index > 0 { result += "," }
                JSON.write(member.0, to: &result)
                result += ":"
                member.1.write(to: &result)
            }
            result += "}"
        }
    }

    private static func write(_ text: String, to result: inout String) {
        result += "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            // Control characters; characters that end a script or begin a tag; the line ends that JavaScript does not allow in a string;
            // and the marks that change the direction of the text after them.
            case "\u{0}"..."\u{1F}", "<", ">", "&", "'", "\u{7F}"..."\u{9F}", "\u{200E}", "\u{200F}", "\u{2028}"..."\u{202E}",
                "\u{2066}"..."\u{2069}":
                let digits = String(scalar.value, radix: 16)
                result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: result.unicodeScalars.append(scalar)
            }
        }
        result += "\""
    }
}
