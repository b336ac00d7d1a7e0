// Rules proved here: the models of Tests/Models match the current code.
// - A step names a function as a file, a colon and the function, and that file has the function.
// - Each fault of a model is in its text and in the list at its top (Scripts/check-models verifies that the search finds each fault).

import Foundation
import Testing

private let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../..").standardizedFileURL

private func models() throws -> [(name: String, text: String)] {
    try FileManager.default.contentsOfDirectory(at: root.appendingPathComponent("Tests/Models"), includingPropertiesForKeys: nil)
        .filter { $0.pathExtension == "pml" }
        .map { ($0.lastPathComponent, try String(contentsOf: $0, encoding: .utf8)) }
}

/// The text of every file of the library, by name.
private func libraryFiles() throws -> [String: String] {
    var files: [String: String] = [:]
    let library = root.appendingPathComponent("Sources")
    for case let name as String in FileManager.default.enumerator(atPath: library.path) ?? .init() where name.hasSuffix(".swift") {
        let url = library.appendingPathComponent(name)
        files[url.lastPathComponent] = try String(contentsOf: url, encoding: .utf8)
    }
    return files
}

/// The steps of a model that name a function.
private func steps(of model: String) -> [(file: String, function: String)] {
    model.matches(of: /\/\* ([\w+]+\.swift): (\w+)/).map { (String($0.1), String($0.2)) }
}

private func declares(_ function: String, _ file: String) -> Bool {
    file.contains("func \(function)(") || file.contains("func \(function)<") || file.contains("var \(function):")
}

@Suite struct ModelTests {
    @Test func `every function that a model names is in the named file`() throws {
        let files = try libraryFiles()
        let models = try models()
        #expect(models.count >= 6)
        for (name, text) in models {
            let steps = steps(of: text)
            #expect(steps.count >= 5, "\(name) names hardly any function")
            for step in steps {
                let isThere = files[step.file].map { declares(step.function, $0) } ?? false
                #expect(isThere, "\(name): \(step.file) has no \(step.function)")
            }
        }
    }

    @Test func `every fault of a model is in the list at its top, and every listed fault is in the model`() throws {
        for (name, text) in try models() {
            let used = Set(text.matches(of: /#ifn?def (FAULT_[A-Z_]+)/).map { String($0.1) })
            let explained = Set(text.matches(of: #/ \*   (FAULT_[A-Z_]+) /#).map { String($0.1) })
            #expect(!used.isEmpty && used == explained, "\(name): \(used.symmetricDifference(explained).sorted())")
        }
    }

    @Test func `the check reports a function that does not exist`() {
        #expect(steps(of: "x = 1;  /* Gone.swift: gone */").map(\.function) == ["gone"])
        #expect(declares("claim", "borrowing func claim() -> Claim? {"))
        #expect(!declares("claim", "func claimServing() {}"))
    }
}
