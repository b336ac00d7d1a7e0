// Rules proved here, for every page:
// - The index (docs/README.md) has every page of the folder, once. LinkTests check that its links lead somewhere.
// - No sentence has more than forty words.

import Foundation
import Testing

@Suite struct PageTests {
    private static let longest = 40
    private static let pages = Checkout.files.filter(\.isPage)

    /// The pages of the folder that the index does not name in the first column of a table, or names twice.
    private static func misplacedPages(_ pages: [String], in index: Checkout.File) -> [String] {
        var counts: [String: Int] = [:]
        for line in index.linesOutsideBlocks where line.text.hasPrefix("| [") {
            let target = line.text.components(separatedBy: "](").dropFirst().first?.prefix { $0 != ")" && $0 != "#" }
            if let target { counts[String(target), default: 0] += 1 }
        }
        return pages.filter { counts[$0] != 1 }.map { "docs/README.md names \($0) \(counts[$0] ?? 0) times, not once" }
    }

    @Test func `the index names every page once`() throws {
        let index = try #require(Checkout.file(at: "docs/README.md"))
        var names = Self.pages.filter { $0.folder == "docs" && $0.path != index.path }.map { String($0.path.dropFirst("docs/".count)) }
        #expect(names.count > 20)
        names.append("decisions/README.md")
        for misplaced in Self.misplacedPages(names, in: index) { Issue.record("\(misplaced)") }
    }

    @Test func `no sentence has more than forty words`() {
        #expect(Self.pages.count > 60)
        var count = 0
        for page in Self.pages {
            for sentence in page.sentences {
                count += 1
                guard sentence.length > Self.longest else { continue }
                Issue.record("\(page.path):\(sentence.line) has a sentence of \(sentence.length) words. Make it two: \(sentence.text)")
            }
        }
        #expect(count > 2000)
    }

    @Test(arguments: [
        ("| [a](a.md) | A |", 1), ("| [a](a.md) | A |\n| [b](b.md) | see a.md |\n| [b again](b.md) | |", 1), ("[a](a.md), [b](b.md)", 2),
    ])
    func `the check reports a page that the index does not name, or names twice`(text: String, count: Int) {
        #expect(Self.misplacedPages(["a.md", "b.md"], in: Checkout.file("docs/README.md", text)).count == count)
    }

    @Test(arguments: [
        ("One two. Three", [2, 1]), ("One\ntwo\n\nthree", [2, 1]), ("- one\n- two three", [1, 2]), ("# One\n\n| two |\n\nthree", [1]),
        ("`a b c` is [one word](a%20b.md)", [4]), ("[`a b`](c.md) is", [2]), ("a → b — c", [1, 2]), ("e.g. version 2.1 (yes.) No", [4, 1]),
        ("```\na b c\n```\none", [1]), ("1. one two\n2. three", [2, 1]),
    ])
    func `sentences are found, and their words are counted`(text: String, lengths: [Int]) {
        #expect(Checkout.file("docs/a.md", text).sentences.map(\.length) == lengths)
    }
}
