// Rules proved here for how tests wait, which the compiler does not check (docs/developing.md):
// - No test polls in a tight loop: such a loop takes the processor from the thread that it waits for, and may never end.
// - No child process of a test ends after a fixed time.
// - A suite whose tests await has a time limit.

import EventLoopTestSupport
import Foundation
import Testing

private struct TestFile {
    let name: String
    let lines: [Substring]
}

private func testFiles() throws -> [TestFile] {
    let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../..").standardizedFileURL
    return try #require(FileManager.default.subpaths(atPath: tests.path))
        .filter { $0.hasSuffix("Tests.swift") || $0.contains("/Documented") }
        .filter { !$0.hasSuffix("WaitRuleTests.swift") }
        .map { path in
            let text = try String(contentsOf: tests.appendingPathComponent(path), encoding: .utf8)
            return TestFile(name: path, lines: text.utf8.split(separator: UInt8(ascii: "\n")).map { Substring($0) })
        }
}

@Suite struct WaitRuleTests {
    @Test func `no test polls in a tight loop`() throws {
        let files = try testFiles()
        #expect(files.count > 100)
        for file in files {
            for (index, line) in file.lines.enumerated() where line.contains("while ") && !line.contains("// load") {
                // The body of the loop, if the next line contains all of it.
                let body = String(line) + (index + 1 < file.lines.count && line.hasSuffix("{") ? file.lines[index + 1] : "")
                let yields = ["Task.yield()", "sched_yield()", "breathe()", "usleep("].filter { body.contains($0) }
                #expect(yields.isEmpty, "\(file.name): use waitUntil or suspendUntil instead of \(line)")
            }
        }
    }

    @Test func `no child process of a test ends after a fixed time`() throws {
        for file in try testFiles() {
            let sleepers = file.lines.filter { $0.contains("/bin/sleep") || $0.contains("(\"sleep ") }
            #expect(sleepers.isEmpty, "\(file.name): use Child.untilKilled() instead of \(sleepers)")
        }
    }

    @Test func `a suite whose tests await has a time limit`() throws {
        // The tests of the trait use loops of their own, and test time limits themselves.
        for file in try testFiles() where !file.name.hasPrefix("EventLoopTestingTests") {
            var suite: Substring?
            for line in file.lines {
                if line.hasPrefix("@Suite") { suite = line }
                // A process that runs an exit test has bounds of its own; the suite's limit does not apply to it.
                guard line.contains("await "), !line.contains("processExitsWith"), let current = suite else { continue }
                #expect(current.contains(".bounded") || current.contains(".timeLimit"), "\(file.name): \(current) needs .bounded")
                suite = nil
            }
        }
    }
}
