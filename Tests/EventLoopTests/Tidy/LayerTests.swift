// Rules proved here, which no compiler states:
// - A file names the types of its own layer and of those below it, not of those above (docs/architecture.md).
// - CLibevent is imported in Libevent/ only; nothing in the library imports Foundation or Dispatch.
// - Of the libraries, one imports Foundation, and one Swift Testing.
// - The ten steps stand in RunLoop+Run.swift, once each and in order, without `#if` and without locks.
// - Whatever claims to be safe without the compiler's word says why, beside the claim.
// - No file of the library is over 400 lines.

import Foundation
import Testing

private let layers = ["Base", "Libevent", "Poller", "Items", "Mode", "Loop", "Concurrency", "Threads", "MessagePorts"]

private struct SourceFile {
    let layer: String
    let name: String
    let lines: [Substring]
    /// Without comments and string literals.
    let code: [String]
    /// The identifiers of the code.
    let words: Set<String>
    /// The types declared at the top of the file, or directly in an extension of RunLoop.
    let declaredTypes: [String]

    init(layer: String, name: String, text: String) {
        self.layer = layer
        self.name = name
        lines = text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { Substring($0) }
        code = lines.map(withoutCommentAndLiterals)
        words = Set(code.flatMap(identifiers))
        declaredTypes = code.compactMap(declaredType)
    }
}

// Bytes and not regular expressions, which take most of a minute for the library's lines in a debug build on a busy machine.

private func withoutCommentAndLiterals(_ line: Substring) -> String {
    let (quote, slash) = (UInt8(ascii: "\""), UInt8(ascii: "/"))
    var kept: [UInt8] = []
    var isInLiteral = false
    for byte in line.utf8 {
        if byte == quote { isInLiteral.toggle() } else if isInLiteral { continue }
        if byte == slash && kept.last == slash { return String(decoding: kept.dropLast(), as: UTF8.self) }
        kept.append(byte)
    }
    return String(decoding: kept, as: UTF8.self)
}

private func identifiers(_ code: String) -> [String] {
    code.utf8.split { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
            UInt8(ascii: "_"), 128...:
            false
        default: true
        }
    }.map { String(Substring($0)) }
}

/// The type that a line at the top of a file, or directly in an extension, declares for others.
private func declaredType(_ code: String) -> String? {
    let spaces = code.utf8.prefix { $0 == UInt8(ascii: " ") }.count
    guard spaces == 0 || spaces == 4, !code.hasPrefix("private") else { return nil }
    let words = identifiers(code)
    guard let kind = words.firstIndex(where: { ["class", "struct", "enum", "protocol", "typealias"].contains($0) }) else { return nil }
    let modifiers: Set<String> = ["public", "private", "fileprivate", "internal", "final", "indirect"]
    return words[..<kind].allSatisfy(modifiers.contains) && kind + 1 < words.count ? words[kind + 1] : nil
}

/// Read once for all tests.
private let filesOfLibrary = Result { try readLibrary() }

private func libraryFiles() throws -> [SourceFile] { try filesOfLibrary.get() }

private func readLibrary() throws -> [SourceFile] {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../../Sources/EventLoop").standardizedFileURL
    return try layers.flatMap { layer in
        try FileManager.default.contentsOfDirectory(at: root.appendingPathComponent(layer), includingPropertiesForKeys: nil)
            .filter { $0.pathExtension == "swift" }
            .map { url in
                SourceFile(layer: layer, name: url.lastPathComponent, text: try String(contentsOf: url, encoding: .utf8))
            }
    }
}

@Suite struct LayerTests {
    @Test func `a file names its own layer and those below it only`() throws {
        let files = try libraryFiles()
        #expect(files.count > 40)
        // Names that several layers use for things of their own say nothing.
        let common: Set<String> = ["RunLoop", "State", "Flag", "Outcome", "Ready", "Header"]
        for (index, layer) in layers.enumerated() {
            let above = Set(files.filter { layers.firstIndex(of: $0.layer)! > index }.flatMap(\.declaredTypes)).subtracting(common)
            let own = Set(files.filter { layers.firstIndex(of: $0.layer)! <= index }.flatMap(\.declaredTypes))
            for file in files where file.layer == layer {
                let named = file.words.intersection(above).subtracting(own)
                #expect(named.isEmpty, "\(layer)/\(file.name) names \(named.sorted()) of a layer above")
            }
        }
    }

    @Test func `libevent is imported in its folder only, and Foundation and Dispatch nowhere`() throws {
        for file in try libraryFiles() {
            let imports = file.code.filter { $0.contains("import ") }
            #expect(file.layer == "Libevent" || !imports.contains { $0.contains("CLibevent") }, "\(file.name)")
            #expect(!imports.contains { $0.contains("Foundation") || $0.contains("Dispatch") }, "\(file.name)")
        }
    }

    @Test(arguments: [("Foundation", "EventLoopFoundation"), ("Testing", "EventLoopTesting")])
    func `what not every user wants to link is imported by one library only`(module: String, library: String) throws {
        let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../../Sources").standardizedFileURL
        // Paths inside `Sources`: the folders above it may have any name. Programs measure Foundation's run loop; nobody links them.
        let files = try #require(FileManager.default.subpaths(atPath: sources.path))
            .filter { !$0.hasPrefix("eventloop-") && $0.hasSuffix(".swift") }
        #expect(files.count > 40)
        let importing = try files.filter { file in
            let lines = try String(contentsOf: sources.appendingPathComponent(file), encoding: .utf8).split(separator: "\n")
            return lines.contains { line in
                guard line.contains("import ") else { return false }
                let words = identifiers(withoutCommentAndLiterals(line)).filter { !["struct", "class", "typealias"].contains($0) }
                return words.firstIndex(of: "import").map { words[words.index(after: $0)...].first?.hasPrefix(module) ?? false } ?? false
            }
        }
        #expect(Set(importing.map { $0.split(separator: "/")[0] }) == [Substring(library)])
    }

    @Test func `the ten steps stand in one file, in order`() throws {
        let file = try #require(try libraryFiles().first { $0.name == "RunLoop+Run.swift" })
        let numbers = file.lines.compactMap { line in line.firstMatch(of: /\/\/ (\d+)$/).flatMap { Int($0.1) } }
        #expect(numbers == [1, 10, 2, 3, 4, 5, 6, 7, 8, 9])
        #expect(!file.lines.contains { $0.contains("#if") || $0.contains("withLock") })
        #expect(file.lines.count <= 70)
    }

    @Test func `every unchecked claim says what makes it safe`() throws {
        for file in try libraryFiles() {
            for (index, line) in file.lines.enumerated() where line.contains("@unchecked Sendable") || line.contains("nonisolated(unsafe)")
            {
                let around = file.lines[max(0, index - 4)...min(index + 2, file.lines.count - 1)]
                #expect(around.contains { $0.contains("SAFETY") }, "\(file.name):\(index + 1)")
            }
        }
    }

    @Test func `no file is over 400 lines`() throws {
        for file in try libraryFiles() { #expect(file.lines.count <= 400, "\(file.name) has \(file.lines.count)") }
    }
}
