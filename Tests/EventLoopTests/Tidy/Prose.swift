// The sentences of a page, for tests that read them.

import Foundation

struct Sentence: Sendable {
    /// The line on which its paragraph begins.
    let line: Int
    let words: [Substring]

    /// The words with a letter or a digit: neither dashes nor arrows.
    var length: Int { words.count { $0.contains { $0.isLetter || $0.isNumber } } }
    var text: String { words.joined(separator: " ") }
}

extension Checkout.File {
    /// The sentences of a page, without code, tables, headings, pictures and the targets of links. A span of code counts as one word.
    var sentences: [Sentence] {
        var found: [Sentence] = []
        for paragraph in paragraphs {
            var words: [Substring] = []
            for word in withoutCodeAndTargets(paragraph.text).split(separator: " ") {
                words.append(word)
                // An arrow separates the steps of a trace.
                guard word == "→" || endsSentence(word) else { continue }
                found.append(Sentence(line: paragraph.line, words: words))
                words = []
            }
            if !words.isEmpty { found.append(Sentence(line: paragraph.line, words: words)) }
        }
        return found
    }

    /// The paragraphs and the items of lists, each in one line.
    private var paragraphs: [(line: Int, text: String)] {
        var found: [(line: Int, text: String)] = []
        var isOpen = false
        var last = 0
        for line in linesOutsideBlocks {
            let text = trimmed(line.text)
            let isProse = !text.isEmpty && !["|", "#", "<"].contains(text.first)
            let marker = markerOfListItem(text)
            if !isProse || line.number != last + 1 || marker > 0 { isOpen = false }
            last = line.number
            guard isProse else { continue }
            if isOpen {
                found[found.count - 1].text += " " + text
            } else {
                found.append((line.number, String(text.dropFirst(marker))))
            }
            isOpen = true
        }
        return found
    }
}

/// The number of characters before the text of an item: `- ` or `1. `; zero if the line begins no item.
private func markerOfListItem(_ text: Substring) -> Int {
    if text.hasPrefix("- ") || text.hasPrefix("* ") { return 2 }
    let digits = text.prefix { $0.isNumber }.count
    return digits > 0 && text.dropFirst(digits).hasPrefix(". ") ? digits + 2 : 0
}

private func endsSentence(_ word: Substring) -> Bool {
    var word = word
    while let last = word.last, ["\"", "'", ")", "*", "_", "]", "”"].contains(last) { word = word.dropLast() }  // ends: it shrinks
    guard let last = word.last, [".", "!", "?"].contains(last) else { return false }
    return !["e.g.", "i.e.", "etc."].contains(word)
}

/// Replaces every span of code by one word, and removes the targets of links.
func withoutCodeAndTargets(_ text: String) -> String {
    var result = ""
    for (index, part) in text.split(separator: "`", omittingEmptySubsequences: false).enumerated() {
        if index % 2 == 1 {
            result += "code"
            continue
        }
        var rest = part
        // A link whose text is a span of code ends in the next part.
        if index > 0, rest.hasPrefix("](") { rest = rest.drop { $0 != ")" } }
        while let opening = rest.range(of: "](") {  // ends: `rest` shrinks
            result += rest[..<opening.upperBound].dropLast()
            rest = rest[opening.upperBound...].drop { $0 != ")" }
        }
        result += rest
    }
    return result
}
