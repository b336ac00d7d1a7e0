// Rules proved here, for pages and comments:
// - Every file, folder or test suite that they name exists: `docs/ports.md`, `Ports/PortSendTests`, `Poller.swift`.
// - Every cell of the column *Tests* in docs/semantics.md names existing tests, with the abbreviations that the page explains.
// - The number of rules without a test does not grow.

import Foundation
import Testing

/// The files, folders and types that a page or a comment can name.
private struct Places {
    let paths: Set<String>
    /// The names of files without their folders.
    let names: Set<String>
    /// Suites and other types. A comment may name a test file by its type.
    let types: Set<String>
    /// Folders whose files are named without the folders above: `Timers/TimerFiringTests`.
    let shortFolders: Set<String>

    init(_ paths: Set<String>, types: Set<String> = []) {
        (self.paths, self.types) = (paths, types)
        names = Set(paths.map { String($0.split(separator: "/").last!) })
        shortFolders = Set(
            paths.compactMap { path in
                let parts = path.split(separator: "/")
                return parts.count > 3 && Self.shortRoots.contains("\(parts[0])/\(parts[1])") ? String(parts[2]) : nil
            }
        ).union(["Diff"])
    }

    private static let shortRoots = [
        "Tests/EventLoopTests", "Sources/EventLoop", "Sources/EventLoop/Loop", "Tests/EventLoopStreamsTests", "Sources/EventLoopStreams",
    ]
    /// Names that stand for any file in a rule, or for a file of the reader's own package.
    private static let anyFile: Set<String> = [
        "main.swift", "Type+Facet.swift", "Package.swift", "Account.swift", "AccountTests.swift", "BankTests",
    ]
    /// Files that are named but do not exist yet. Remove a name from this list when its file is added.
    private static let announced: Set<String> = ["Tests/Models/signal.pml"]

    /// Whether a file exists at this full or short path, with or without `.swift`.
    func has(_ path: String) -> Bool {
        if paths.contains(path) || paths.contains(path + ".swift") { return true }
        if path.hasPrefix("Diff/") { return has("Tests/DifferentialTests/" + path.dropFirst(5)) }
        return Self.shortRoots.contains { paths.contains("\($0)/\(path)") || paths.contains("\($0)/\(path).swift") }
    }

    /// True if the word names a file or suite that does not exist.
    func isDead(_ word: String) -> Bool {
        let parts = word.split(separator: "/")
        guard let last = parts.last, let first = parts.first, !word.hasPrefix("/"), !Self.announced.contains(word) else { return false }
        let isCapitalized = last.utf8.first.map { $0 >= UInt8(ascii: "A") && $0 <= UInt8(ascii: "Z") } ?? false
        let isSuite = last.hasSuffix("Tests") && isCapitalized
        if parts.count > 1 {
            if ["Tests", "Sources", "docs", "Scripts", "Fuzz", "Benchmarks", ".ci"].contains(first) { return !has(word) }
            if shortFolders.contains(String(first)) && isCapitalized || isSuite && parts.count == 2 { return !has(word) }
        } else if isSuite && last != "Tests" {
            return !types.contains(word) && !names.contains(word) && !names.contains(word + ".swift") && !Self.anyFile.contains(word)
        }
        let isFile = [".swift", ".md", ".c", ".pml", ".supp"].contains { last.hasSuffix($0) } && !last.hasPrefix(".")
        return isFile && !names.contains(String(last)) && !Self.anyFile.contains(String(last))
    }

    func deadReferences(in file: Checkout.File) -> [String] {
        file.lines.flatMap { line in
            words(line.prose).filter(isDead).map { "\(file.path):\(line.number) names \($0), which is not there" }
        }
    }
}

/// The words of a line that could name a file: words with a slash or a dot in the middle, and words that end like the name of a suite.
private func words(_ prose: Substring) -> [String] {
    let (slash, dot, hyphen) = (UInt8(ascii: "/"), UInt8(ascii: "."), UInt8(ascii: "-"))
    return prose.utf8.split { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
            UInt8(ascii: "_"), UInt8(ascii: "+"), slash, dot, hyphen:
            false
        default: true
        }
    }.compactMap { bytes in
        var bytes = bytes
        while let last = bytes.last, last == dot || last == slash || last == hyphen { bytes = bytes.dropLast() }  // ends: it shrinks
        guard bytes.contains(where: { $0 == slash || $0 == dot }) || bytes.last == UInt8(ascii: "s") else { return nil }
        return String(Substring(bytes))
    }
}

private let places: Places = {
    let declarations = Checkout.files.filter { $0.path.hasSuffix("Tests.swift") || $0.path.contains("Tests/") }.flatMap(\.lines)
    let types = declarations.compactMap { line -> String? in
        let words = line.text.split(separator: " ", maxSplits: 4)
        guard let kind = words.firstIndex(where: { $0 == "struct" || $0 == "class" }), kind + 1 < words.count else { return nil }
        return String(words[kind + 1].prefix { $0.isLetter || $0.isNumber })
    }
    return Places(Checkout.paths, types: Set(types))
}()

@Suite struct FileReferenceTests {
    @Test func `files that pages and comments name exist`() {
        #expect(Checkout.files.count > 200)
        // The changelog also names files that no longer exist.
        for file in Checkout.files where file.path != "CHANGELOG.md" {
            for dead in places.deadReferences(in: file) { Issue.record("\(dead)") }
        }
    }

    @Test func `tests that the rules name exist`() throws {
        let semantics = try #require(Checkout.file(at: "docs/semantics.md"))
        let cells = semantics.cells(under: "Tests")
        #expect(cells.count > 150)
        for (line, _, cell) in cells {
            for name in quoted(cell) where name != "Main" {
                if !places.has(String(name)) { Issue.record("docs/semantics.md:\(line.number) names \(name), which is not there") }
            }
        }
    }

    /// Lower the number when a rule gets its test. Raise it only for a rule that no test can prove.
    @Test func `the number of rules without a test does not grow`() throws {
        let semantics = try #require(Checkout.file(at: "docs/semantics.md"))
        let unproved = semantics.cells(under: "Tests").filter { quoted($0.cell).isEmpty }
        let list = unproved.map { "\n\($0.line.number): \($0.line.text.prefix(120))" }.joined()
        #expect(unproved.count <= 3, "docs/semantics.md has \(unproved.count) rules without a test:\(list)")
    }

    @Test(arguments: [
        "Ports/PortTurnTests", "`Ports/PortTurnTests`,", "see PortTurnTests.", "docs/turns.md", "[turns](turns.md#all)", "Base/Turn",
        "Turn.swift",
        "Tests/Models/turn.pml", "Diff/TurnTests", "(Scripts/turn)", "Gone/PortSendTests",
    ])
    func `the check reports a file that does not exist`(text: String) {
        let places = Places([
            "docs", "docs/ports.md", "Tests/EventLoopTests/Ports/PortSendTests.swift", "Sources/EventLoop/Base/Deque.swift",
        ])
        #expect(places.deadReferences(in: Checkout.file("docs/a.md", text)).count == 1)
    }

    @Test(arguments: [
        "Ports/PortSendTests", "PortSendTests", "docs/ports.md", "[ports](ports.md#all)", "Base/Deque", "Deque.swift", "`Diff/RunTests`",
        "a Deque",
        "sys/socket.h", "and/or", "https://example.org/turn.md", "/etc/Turn.swift", "e.g. this", "Tests of turns", "`Base/`",
    ])
    func `the check ignores a file that exists, and text that names no file`(text: String) {
        let places = Places([
            "docs", "docs/ports.md", "Tests/EventLoopTests/Ports/PortSendTests.swift", "Sources/EventLoop/Base/Deque.swift",
            "Tests/DifferentialTests/RunTests.swift",
        ])
        #expect(places.deadReferences(in: Checkout.file("docs/a.md", text)).isEmpty)
    }
}
