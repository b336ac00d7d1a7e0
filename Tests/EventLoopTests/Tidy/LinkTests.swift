// Rules proved here, for every page:
// - A link without a host leads to a file of the checkout, and its anchor, if it has one, to a heading of that page.

import Foundation
import Testing

private struct Page {
    let file: Checkout.File

    /// The anchors that a link may name after `#`: the headings in GitHub's form. A repeated heading has a number.
    var anchors: Set<String> {
        var counts: [String: Int] = [:]
        var found: Set<String> = []
        for line in file.linesOutsideBlocks where line.text.hasPrefix("#") {
            let anchor = Self.anchor(of: line.text)
            let count = counts[anchor, default: 0]
            found.insert(count == 0 ? anchor : "\(anchor)-\(count)")
            counts[anchor] = count + 1
        }
        for line in file.lines {
            // <a id="name">
            for part in line.text.components(separatedBy: "<a id=\"").dropFirst() { found.insert(String(part.prefix { $0 != "\"" })) }
        }
        return found
    }

    private static func anchor(of heading: Substring) -> String {
        let text = trimmed(heading.drop { $0 == "#" })
        // Only the text of a link counts, not its target.
        var visible = ""
        var isTarget = false
        for character in text {
            if character == "(" && visible.last == "]" { isTarget = true }
            if !isTarget { visible.append(character) }
            if character == ")" { isTarget = false }
        }
        return String(
            visible.lowercased().compactMap { character -> Character? in
                if character == " " { return "-" }
                return character.isLetter || character.isNumber || character == "-" || character == "_" ? character : nil
            })
    }

    /// The targets of `[text](target)`, `[name]: target` and `src="target"`.
    var links: [(line: Int, target: String)] {
        file.linesOutsideBlocks.flatMap { line in
            var targets: [String] = []
            for opening in ["](", "src=\"", "href=\""] where line.text.utf8.contains(UInt8(ascii: opening == "](" ? "(" : "\"")) {
                for part in line.text.components(separatedBy: opening).dropFirst() {
                    targets.append(String(part.prefix { $0 != ")" && $0 != " " && $0 != "\"" }))
                }
            }
            if line.text.hasPrefix("["), let colon = line.text.range(of: "]: ") {
                targets.append(String(trimmed(line.text[colon.upperBound...]).prefix { $0 != " " }))
            }
            return targets.map { (line.number, $0) }
        }
    }

    func deadLinks(paths: Set<String>, pages: (String) -> Page?) -> [String] {
        links.compactMap { line, target in
            if target.hasPrefix("http://") || target.hasPrefix("https://") || target.hasPrefix("mailto:") { return nil }
            let parts = target.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
            let path = parts[0].isEmpty ? file.path : resolved(String(parts[0]))
            guard let path, path.isEmpty || paths.contains(path) else {
                return "\(file.path):\(line) links to \(target), which is not there"
            }
            guard parts.count == 2, path.hasSuffix(".md") else { return nil }
            let isThere = pages(path)?.anchors.contains(String(parts[1])) ?? false
            return isThere ? nil : "\(file.path):\(line) links to \(target), a heading that is not there"
        }
    }

    /// The path relative to the root of the checkout; nil if it is outside the checkout.
    private func resolved(_ target: String) -> String? {
        var parts = file.folder.split(separator: "/").map(String.init)
        for part in target.split(separator: "/") where part != "." {
            if part != ".." { parts.append(String(part)) } else if parts.popLast() == nil { return nil }
        }
        return parts.joined(separator: "/")
    }
}

@Suite struct LinkTests {
    @Test func `links lead to existing files and headings`() {
        let pages = Checkout.files.filter(\.isPage).map(Page.init)
        #expect(pages.count > 10 && pages.map(\.links.count).reduce(0, +) > 50)
        for page in pages {
            for dead in page.deadLinks(paths: Checkout.paths, pages: { path in pages.first { $0.file.path == path } }) {
                Issue.record("\(dead)")
            }
        }
    }

    private let other = Page(
        file: Checkout.file("docs/other.md", "# A `mode`, and more\n## Twice\n## Twice\n```\n# code\n```\n<a id=\"here\"></a>"))

    private func deadLinks(_ text: String) -> [String] {
        let page = Page(file: Checkout.file("docs/page.md", "# Top\n" + text))
        return page.deadLinks(paths: ["README.md", "docs/page.md", "docs/other.md"]) { $0 == "docs/page.md" ? page : other }
    }

    @Test(arguments: [
        "[a](gone.md)", "[a](other.md#twice-2)", "[a](#gone)", "[a](../docs/gone.md#top)", "[a](../../README.md)", "[a]: gone.md",
        "[a](other.md#code)",
        "<img src=\"gone.png\">", "[a](other.md) [b](gone.md)",
    ])
    func `the check reports a dead link`(text: String) { #expect(deadLinks(text).count == 1) }

    @Test(arguments: [
        "[a](other.md)", "[a](other.md#a-mode-and-more)", "[a](#top)", "[a](other.md#twice-1)", "[a](../README.md)",
        "[a](https://example.org/gone)",
        "[a](other.md#here)", "```\n[a](gone.md)\n```", "[a](./other.md \"title\")",
    ])
    func `the check ignores a valid link`(text: String) { #expect(deadLinks(text).isEmpty) }
}
