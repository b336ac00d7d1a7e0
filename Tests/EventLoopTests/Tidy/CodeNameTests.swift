// Rules proved here, for the pages on how the package is built:
// - A name in back quotes is a name in the code, the name of a file, or a listed name of another library or program.

import Testing

@Suite struct CodeNameTests {
    private static let pages = ["docs/architecture.md", "docs/glossary.md", "docs/run-sequence.md"]

    /// Names of other libraries and programs.
    private static let foreign: Set<String> = [
        "MainActor", "_Fork", "assumeIsolated", "clone", "evbuffer_pullup", "event_core", "event_extra", "event_openssl", "event_pthreads",
        "event_reinit", "kcmp",
        "libevent_core", "max_dispatch_callbacks", "os_unfair_lock", "swift_task_asyncMainDrainQueue", "vfork",
    ]

    /// The identifiers in the text that have at least four characters: shorter ones are often English words.
    private static func names(in text: Substring) -> [Substring] {
        text.split { !($0.isLetter || $0.isNumber || $0 == "_") }.filter { $0.utf8.count > 3 && !($0.first?.isNumber ?? true) }
    }

    private static let known: Set<Substring> = {
        var known: Set<Substring> = []
        for file in Checkout.files where !file.isPage && file.path.hasPrefix("Sources/") {
            for line in file.lines { known.formUnion(names(in: line.text.dropLast(line.prose.utf8.count))) }
        }
        for path in Checkout.paths { known.formUnion(names(in: Substring(path))) }
        return known
    }()

    static func unknownNames(in file: Checkout.File, known: Set<Substring>) -> [String] {
        file.linesOutsideBlocks.flatMap { line in
            quoted(line.text).filter { !$0.hasPrefix("/*") && !$0.hasPrefix("make ") }.flatMap(names).filter {
                !known.contains($0) && !foreign.contains(String($0))
            }
            .map { "\(file.path):\(line.number) names \($0), which is not in the code" }
        }
    }

    @Test func `names on the pages about the code exist in the code`() {
        #expect(Self.known.count > 2000)
        let pages = Checkout.files.filter { Self.pages.contains($0.path) || $0.folder == "docs/decisions" }
        #expect(pages.count > 25)
        for page in pages {
            for dead in Self.unknownNames(in: page, known: Self.known) { Issue.record("\(dead)") }
        }
    }

    @Test(arguments: ["`gone`", "call `gone()`", "`here`, `Poller.gone`", "`gone.swift`"])
    func `the check reports a name that is not in the code`(text: String) {
        #expect(Self.unknownNames(in: Checkout.file("docs/a.md", text), known: ["here", "Poller", "swift"]).count == 1)
    }

    @Test(arguments: ["`here`", "gone", "`Poller.here(to:)`", "`1.x`", "```\n`gone`\n```", "`+Run`"])
    func `the check ignores a name that is in the code, and text that is not a name`(text: String) {
        #expect(Self.unknownNames(in: Checkout.file("docs/a.md", text), known: ["here", "Poller"]).isEmpty)
    }
}
