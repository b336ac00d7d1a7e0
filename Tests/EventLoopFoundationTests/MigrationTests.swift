// Rule proved here: code written for Foundation's RunLoop and Timer needs only other imports to use this package, and behaves the same.

import EventLoopTestSupport
import Foundation
import MigrationAfter
import MigrationBefore
import Testing

@Suite struct MigrationTests {
    @Test func `the two programs differ only in their imports`() throws {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../Migration").standardizedFileURL
        let texts = try ["Before", "After"].map { version in
            try String(contentsOf: folder.appendingPathComponent("\(version)/Heartbeat.swift"), encoding: .utf8)
                .split(separator: "\n", omittingEmptySubsequences: false)
        }
        #expect(texts[0].filter { $0.hasPrefix("import ") } == ["import Foundation"])
        #expect(texts[1].filter { $0.hasPrefix("import ") } == ["import EventLoop", "import EventLoopFoundation"])
        #expect(texts[0].filter { !$0.hasPrefix("import ") } == texts[1].filter { !$0.hasPrefix("import ") })
    }

    @Test func `the program behaves the same with this package as with Foundation`() throws {
        let before = try plainThread { MigrationBefore.runProgram() }.join()
        let after = try plainThread { MigrationAfter.runProgram() }.join()
        #expect(after == before)
        #expect(after.count > 15 && after.last == "valid: false")
    }
}
