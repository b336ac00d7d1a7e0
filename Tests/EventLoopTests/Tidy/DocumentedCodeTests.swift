// A compiled file contains every block of Swift in the pages named here, line by line (goals: examples compile).

import Foundation
import Testing

@Suite struct DocumentedCodeTests {
    private static let sources = [
        "docs/concurrency.md": ["EventLoopTests/Concurrency/DocumentedConcurrency.swift", "AsyncMainProbe/Examples.swift"],
        "docs/c-libraries.md": [
            "../Examples/Sources/evhttp-server/Server.swift", "../Examples/Sources/evhttp-server/Exchange.swift",
            "../Examples/Sources/hiredis-client/Program.swift", "../Examples/Sources/hiredis-client/Client.swift",
            "../Examples/Sources/curl-downloads/Program.swift", "../Examples/Sources/curl-downloads/Downloads.swift",
        ],
        "docs/threads.md": ["EventLoopTests/Concurrency/DocumentedConcurrency.swift", "AsyncMainProbe/Examples.swift"],
        "docs/foundation.md": ["EventLoopFoundationTests/DocumentedFoundation.swift", "EventLoopFoundationTests/DocumentedNames.swift"],
        "docs/corefoundation.md": ["EventLoopCFTests/DocumentedCF.swift"],
        "docs/ports.md": ["EventLoopTests/Ports/DocumentedPorts.swift"],
        "docs/kernel-sources.md": ["EventLoopTests/Sockets/DocumentedKernelSources.swift"],
        "docs/message-ports.md": ["EventLoopTests/MessagePorts/DocumentedMessagePorts.swift"],
        "docs/embedding.md": [
            "GLibHost", "GLibGuest", "LibuvHost", "LibuvGuest",
        ].map { "../Examples/Sources/Embedding/\($0).swift" },
        "docs/streams.md": ["EventLoopStreamsTests/DocumentedStreams.swift", "../Examples/Tests/TLSTests/DocumentedTLS.swift"],
        "docs/testing.md": ["EventLoopTestingTests/DocumentedTesting.swift", "EventLoopXCTestTests/DocumentedXCTest.swift"],
    ]

    @Test(arguments: sources.keys.sorted())
    func `a compiled file contains the page's code`(page: String) throws {
        let blocks = try swiftBlocks(of: page)
        #expect(!blocks.isEmpty)
        let compiled = try Self.sources[page]!.map { try lines(of: "Tests/\($0)") }
        for block in blocks {
            #expect(compiled.contains { stands(block, in: $0) }, "\(page): no compiled file has\n\(block.joined(separator: "\n"))")
        }
    }

    @Test func `a compiled file contains the README's code on concurrency`() throws {
        let blocks = try swiftBlocks(of: "README.md").filter { $0.contains { $0.contains("unownedExecutor") } }
        #expect(!blocks.isEmpty)
        let compiled = try lines(of: "Tests/EventLoopTests/Concurrency/DocumentedConcurrency.swift")
        for block in blocks {
            // The README shows parts of the file one after another.
            for piece in block.split(separator: "", omittingEmptySubsequences: true) {
                #expect(stands(Array(piece), in: compiled), "\(piece)")
            }
        }
    }

    @Test func `the check reports a block that differs in one line`() {
        let file = ["    a {", "        b", "    }"]
        #expect(stands(["a {", "    b", "}"], in: file))
        #expect(!stands(["a {", "    c", "}"], in: file))
        #expect(!stands(["a {", "b", "}"], in: file))
    }
}

private let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../..").standardizedFileURL

private func lines(of file: String) throws -> [String] {
    try String(contentsOf: root.appendingPathComponent(file), encoding: .utf8).components(separatedBy: "\n")
}

private func swiftBlocks(of page: String) throws -> [[String]] {
    var blocks: [[String]] = []
    var block: [String]?
    for line in try lines(of: page) {
        if line == "```swift" {
            block = []
        } else if line == "```", let whole = block {
            blocks.append(whole)
            block = nil
        } else {
            block?.append(line)
        }
    }
    return blocks
}

/// Whether the file contains the lines one after another, all with the same additional indentation.
private func stands(_ block: [String], in file: [String]) -> Bool {
    guard let first = block.first, file.count >= block.count else { return false }
    return file.indices.dropLast(block.count - 1).contains { start in
        guard file[start].hasSuffix(first) else { return false }
        let indent = String(repeating: " ", count: file[start].count - first.count)
        return block.indices.allSatisfy { file[start + $0] == (block[$0].isEmpty ? "" : indent + block[$0]) }
    }
}
