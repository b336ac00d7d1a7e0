// Rules proved here, for pages, and for the comments and names in Sources:
// - They use the standard term, and not one of the words that `BannedWord` lists.

import Testing

private func isLetterOrDigit(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"), 128...: true
    default: false
    }
}

private struct Word {
    let text: String
    let line: Int
}

extension Checkout.File {
    /// The words of the prose in lower case, without blocks and spans of code.
    fileprivate var words: [Word] {
        var found: [Word] = []
        for line in isPage ? linesOutsideBlocks : lines {
            var (word, isCode): ([UInt8], Bool) = ([], false)
            for byte in line.prose.utf8 {
                if byte == UInt8(ascii: "`") { isCode.toggle() }
                if !isCode && isLetterOrDigit(byte) {
                    word.append(byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") ? byte + 32 : byte)
                } else if !word.isEmpty {
                    found.append(Word(text: String(decoding: word, as: UTF8.self), line: line.number))
                    word = []
                }
            }
            if !word.isEmpty { found.append(Word(text: String(decoding: word, as: UTF8.self), line: line.number)) }
        }
        return found
    }
}

/// A phrase, and where a word of it is.
private struct Phrase {
    let words: [String]
    init(_ text: String) { words = text.split(separator: " ").map(String.init) }

    func matches(_ text: [Word], at start: Int) -> Bool {
        start >= 0 && start + words.count <= text.count && words.indices.allSatisfy { text[start + $0].text == words[$0] }
    }

    /// Whether it is in the text so that it covers the word at the position.
    func covers(_ position: Int, of text: [Word]) -> Bool { words.indices.contains { matches(text, at: position - $0) } }
}

private struct Check {
    let word: BannedWord
    let form: Phrase
    let allowed: [Phrase]

    static let byFirstWord: [String: [Check]] = {
        var found: [String: [Check]] = [:]
        for word in BannedWord.all {
            for form in word.forms.map(Phrase.init) {
                found[form.words[0], default: []].append(Check(word: word, form: form, allowed: word.allowed.map(Phrase.init)))
            }
        }
        return found
    }()

    static func failures(in file: Checkout.File) -> [String] {
        let words = file.words
        return words.indices.flatMap { position in
            (byFirstWord[words[position].text] ?? []).filter { check in
                check.form.matches(words, at: position) && !check.allowed.contains { $0.covers(position, of: words) }
            }
            .map { check in
                "\(file.path):\(words[position].line) says \"\(check.form.words.joined(separator: " "))\". Instead: \(check.word.instead)"
            }
        }
    }
}

@Suite struct BannedWordTests {
    @Test func `pages and comments use the standard terms`() {
        let files = Checkout.files.filter { $0.isPage || $0.path.hasPrefix("Sources/") }
        #expect(files.count > 400)
        for file in files {
            for failure in Check.failures(in: file) { Issue.record("\(failure)") }
        }
    }

    @Test func `names in the code are the standard terms`() {
        for file in Checkout.files where file.path.hasPrefix("Sources/") && file.path.hasSuffix(".swift") {
            for line in file.lines {
                for name in line.text.dropLast(line.prose.utf8.count).utf8.split(whereSeparator: { !isLetterOrDigit($0) }) {
                    guard let better = BannedWord.names[Substring(name)] else { continue }
                    Issue.record("\(file.path):\(line.number) has the name \(Substring(name)). Instead: \(better)")
                }
            }
        }
    }

    @Test(arguments: ["It told the peer.", "it lets go of it", "Lets go\nof it", "so neither does it", "he cannot say what he was told"])
    func `the check reports a banned word`(text: String) {
        #expect(Check.failures(in: Checkout.file("docs/a.md", text)).count == 1)
    }

    @Test(arguments: ["`tell`", "```\ntold\n```", "It cannot tell one from the other.", "told apart", "letting goods go", "retold"])
    func `the check ignores code, other words, and phrases in which the word is the standard one`(text: String) {
        #expect(Check.failures(in: Checkout.file("docs/a.md", text)).isEmpty)
    }
}
