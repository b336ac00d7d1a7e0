// Rule proved here: the sanitizers miss no suite with a tag, although `make test-tsan TAGS=…` leaves out some folders of tests.

import Testing

@Suite struct TaggedSuiteTests {
    @Test func `no folder that Package swift leaves out for tagged tests has a suite with a tag`() throws {
        let manifest = try #require(Checkout.file(at: "Package.swift"))
        let list = manifest.lines.map(\.text).drop { !$0.contains("let untagged: Set = [") }.dropFirst().prefix { !$0.hasPrefix("    ]") }
        let leftOut = list.flatMap { $0.split(separator: "\"").filter { $0.hasSuffix("Tests") } }
        #expect(leftOut.count >= 5)
        for folder in leftOut {
            let files = Checkout.files.filter { $0.path.hasPrefix("Tests/\(folder)/") }
            #expect(!files.isEmpty, "\(folder)")
            for file in files where file.lines.contains(where: { $0.text.contains(".tags(") }) {
                Issue.record("\(file.path) has a suite with a tag, and is left out")
            }
        }
    }
}
