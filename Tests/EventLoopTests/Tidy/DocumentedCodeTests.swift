// Rules proved here (goals: examples compile), for README.md and every page of docs:
// - A compiled file contains each block of Swift, line by line. Only parts of a package's manifest are exempt.

import Testing

@Suite struct DocumentedCodeTests {
    /// Where the code of pages is: files that are named for a page, programs, and examples.
    private static let compiled = Checkout.files.filter { file in
        let isForPages = file.path.hasPrefix("Tests/") && file.path.split(separator: "/").last!.hasPrefix("Documented")
        let isProgram = ["Tests/DocumentedPrograms/", "Tests/AsyncMainProbe/", "Examples/"].contains { file.path.hasPrefix($0) }
        return file.path.hasSuffix(".swift") && (isForPages || isProgram)
    }.map(Text.init)

    private static let pages = Checkout.files.filter { $0.path == "README.md" || $0.isPage && $0.path.hasPrefix("docs/") }

    private static func isManifest(_ block: [Substring]) -> Bool { block.contains { $0.contains(".package(") } }

    @Test func `a compiled file contains every block of Swift of every page`() {
        let blocks = Self.pages.flatMap { page in Self.swiftBlocks(of: page).map { (page, $0) } }
        #expect(Self.pages.count > 25 && blocks.count > 100 && Self.compiled.count > 30)
        for (page, (line, block)) in blocks where !Self.isManifest(block) {
            if !Self.compiled.contains(where: { $0.contains(block) }) {
                Issue.record("\(page.path):\(line): no compiled file has\n\(block.joined(separator: "\n"))")
            }
        }
    }

    @Test(arguments: [
        ("a {\n    b\n}", true), ("a {\n    c\n}", false), ("a {\nb\n}", false), ("a {\n    b\n}\n\nd", true), ("b\n}", false),
        ("    b\n}", true), ("x {\n    b", false), ("d\ne", false),
    ])
    func `the check reports a block that differs in one line`(block: String, isThere: Bool) {
        let file = Text(Checkout.file("Tests/A.swift", "func f() {\n    a {\n        b\n    }\n\n    d\n}"))
        #expect(file.contains(block.split(separator: "\n", omittingEmptySubsequences: false)) == isThere)
    }

    @Test func `blocks of other languages are not Swift`() {
        let page = Checkout.file("docs/a.md", "```\nx\n```\n```swift\ny\n\nz\n```\n```sql\nw\n```")
        let blocks = Self.swiftBlocks(of: page)
        #expect(blocks.map(\.lines) == [["y", "", "z"]] && blocks.map(\.number) == [5])
    }

    /// The blocks of Swift, each with the number of its first line.
    private static func swiftBlocks(of page: Checkout.File) -> [(number: Int, lines: [Substring])] {
        var blocks: [(Int, [Substring])] = []
        var block: [Checkout.Line]?
        for line in page.lines {
            if line.text == "```swift" {
                block = []
            } else if line.text == "```" {
                if let first = block?.first { blocks.append((first.number, block!.map(\.text))) }  // it has a first line
                block = nil
            } else {
                block?.append(line)
            }
        }
        return blocks
    }
}

/// The lines of a file, without their indentation for a fast search.
private struct Text {
    private let lines: [Substring]
    private let places: [Substring: [Int]]

    init(_ file: Checkout.File) {
        lines = file.lines.map(\.text)
        places = Dictionary(grouping: lines.indices) { [lines] in trimmed(lines[$0]) }
    }

    /// Whether the file contains the lines one after another, all with the same additional indentation.
    func contains(_ block: [Substring]) -> Bool {
        guard let first = block.first else { return false }
        return places[trimmed(first), default: []].contains { start in
            guard start + block.count <= lines.count, lines[start].hasSuffix(first) else { return false }
            let indent = lines[start].dropLast(first.count)
            return block.indices.allSatisfy { lines[start + $0] == (block[$0].isEmpty ? "" : indent + block[$0]) }
        }
    }
}
