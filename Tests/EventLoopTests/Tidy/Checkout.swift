// The files of the checkout, for tests that read them. Each file is read once, for all tests.
//
// The code works on bytes instead of regular expressions: a debug build takes most of a minute to match one against every line.

import Foundation

enum Checkout {
    struct File: Sendable {
        /// The path relative to the root of the checkout: `docs/semantics.md`.
        let path: String
        let lines: [Line]

        var isPage: Bool { path.hasSuffix(".md") }
        var folder: String { path.split(separator: "/").dropLast().joined(separator: "/") }
    }

    struct Line: Sendable {
        /// The first line has the number one.
        let number: Int
        let text: Substring
        /// The text for human readers: the whole line of a page, or the comment of a line of code.
        let prose: Substring
    }

    static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../..").standardizedFileURL

    /// Every file and folder except build folders and `.git`.
    static let paths: Set<String> = {
        var found: Set<String> = []
        var folders = [""]
        while let folder = folders.popLast() {  // ends: folders are finite, and a cyclic link is followed only a few times
            let entries = (try? FileManager.default.contentsOfDirectory(atPath: root.appendingPathComponent(folder).path)) ?? []
            for name in entries where name != ".git" && !name.hasPrefix(".build") {
                let path = folder.isEmpty ? name : "\(folder)/\(name)"
                found.insert(path)
                var isFolder: ObjCBool = false
                let isThere = FileManager.default.fileExists(atPath: root.appendingPathComponent(path).path, isDirectory: &isFolder)
                let depth = path.split(separator: "/").count
                if isThere && isFolder.boolValue && depth < 10 && name != "Corpus" { folders.append(path) }
            }
        }
        return found
    }()

    /// All pages, and all code in Swift and C.
    static let files: [File] = paths.filter { $0.hasSuffix(".md") || $0.hasSuffix(".swift") || $0.hasSuffix(".c") || $0.hasSuffix(".h") }
        .sorted().compactMap { path in
            (try? String(contentsOf: root.appendingPathComponent(path), encoding: .utf8)).map { file(path, $0) }
        }

    static func file(at path: String) -> File? { files.first { $0.path == path } }

    static func file(_ path: String, _ text: String) -> File {
        let isPage = path.hasSuffix(".md")
        let lines = text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        return File(
            path: path,
            lines: lines.enumerated().map { index, line in
                Line(number: index + 1, text: Substring(line), prose: Substring(isPage ? line : comment(of: line)))
            })
    }

    /// Returns the line from its first `//` or `/*` outside a string, or the whole line if it is inside a multi-line comment.
    private static func comment(of line: Substring.UTF8View) -> Substring.UTF8View {
        let (slash, star, quote, escape) = (UInt8(ascii: "/"), UInt8(ascii: "*"), UInt8(ascii: "\""), UInt8(ascii: "\\"))
        if line.first(where: { $0 != UInt8(ascii: " ") }) == star { return line }
        var last: UInt8 = 0
        var isInLiteral = false
        for index in line.indices {
            let byte = line[index]
            if byte == quote && last != escape { isInLiteral.toggle() }
            if !isInLiteral && last == slash && (byte == slash || byte == star) { return line[line.index(before: index)...] }
            last = byte
        }
        return line[line.endIndex...]
    }
}

extension Checkout.File {
    /// The lines outside fenced blocks of code.
    var linesOutsideBlocks: [Checkout.Line] {
        var isInBlock = false
        return lines.filter { line in
            let isFence = line.text.hasPrefix("```")
            if isFence { isInBlock.toggle() }
            return !isInBlock && !isFence
        }
    }

    /// The rows of every table that has a column of this name, each with its cell in that column.
    func cells(under column: String) -> [(line: Checkout.Line, first: Substring, cell: Substring)] {
        var place: Int?
        var isHead = true
        var found: [(Checkout.Line, Substring, Substring)] = []
        for line in lines {
            guard line.text.hasPrefix("|") else {
                (place, isHead) = (nil, true)
                continue
            }
            let cells = line.text.dropFirst().split(separator: "|", omittingEmptySubsequences: false).dropLast().map(trimmed)
            if isHead {
                place = cells.firstIndex { $0 == column }
                isHead = false
            } else if let place, !line.text.hasPrefix("|---"), place < cells.count {
                found.append((line, cells[0], cells[place]))
            }
        }
        return found
    }
}

func trimmed(_ text: Substring) -> Substring {
    var text = text
    while text.utf8.first == UInt8(ascii: " ") { text = text.dropFirst() }  // ends: each turn removes a space
    while text.utf8.last == UInt8(ascii: " ") { text = text.dropLast() }  // ends: likewise
    return text
}

/// The parts of the text that are between back quotes.
func quoted(_ text: Substring) -> [Substring] {
    let parts = text.split(separator: "`", omittingEmptySubsequences: false)
    return parts.indices.filter { $0 % 2 == 1 && $0 + 1 < parts.count }.map { parts[$0] }
}
