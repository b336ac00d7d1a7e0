// Rules proved here:
// - Every rule of docs/semantics.md has a number in bold, which begins with the number of its section.
// - Every rule number that a comment cites exists in docs/semantics.md, in bold or as a section.
// - A rule that says "CF, not" has a row in docs/cfrunloop.md, and each row there belongs to one of these rules.
// - Every cited decision has a page in docs/decisions, which is in the index and has the parts of a decision.
// - No file refers to notes that are not in the checkout.

import Testing

/// The rule numbers that a page defines. Finds citations of other numbers.
private struct Rules {
    /// The numbers as the page writes them: "1.9.5".
    private(set) var numbers: Set<String> = []
    private(set) var sections: Set<String> = []
    /// Rules without a number, and rules with a number of another section.
    private(set) var misnumbered: [String] = []

    init(_ semantics: Checkout.File) {
        var section = ""
        let rules = Set(semantics.cells(under: "Rule").map(\.line.number))
        for line in semantics.lines {
            if line.text.hasPrefix("## "), let number = parse(line.text.dropFirst(3)).first?.text {
                section = number
                sections.insert(number)
            }
            let own = line.text.components(between: "**").filter { $0.utf8.first.map(isDigit) ?? false }.flatMap { parse($0).map(\.text) }
            numbers.formUnion(own)
            for number in own where !number.hasPrefix(section + ".") { misnumbered.append("line \(line.number): \(number)") }
            if own.isEmpty && rules.contains(line.number) { misnumbered.append("line \(line.number): no number") }
        }
    }

    /// Whether the number is that of a rule or a section, or a prefix of several rules (1.9 of 1.9.5).
    func has(_ number: String) -> Bool {
        numbers.contains(number) || sections.contains(number)
            || number.contains(".") && numbers.contains { $0.hasPrefix(number + ".") }
    }

    func deadCitations(in file: Checkout.File) -> [String] {
        citations(in: file).filter { !has($0.number) }
            .map { "\(file.path):\($0.line) cites \($0.number), which docs/semantics.md does not have" }
    }
}

/// The rules that a file cites, in these forms:
///
///     // … (semantics 1.5, 3.4 to 3.9; …):      may also be the number of a section
///     // … the reason (1.9, 3.4).
///     // 4.1  What the rule says                 or only the part after the dot, if the first line names one section: "semantics 5"
///     // MARK: 4.1 and 1.5                       also in the short form
///     because: "1.6"
///     rule 1.6, on a page
private func citations(in file: Checkout.File) -> [(line: Int, number: String)] {
    var found: [(Int, String)] = []
    let head = file.lines.first.map { numbers(behind: "semantics", in: $0.prose) } ?? []
    let section = head.count == 1 && !head[0].contains(".") ? head[0] : nil
    func add(_ line: Checkout.Line, _ numbers: [String]) { found += numbers.map { (line.number, $0) } }
    // On other pages, a number in parentheses is a measurement.
    let hasNumbersInParentheses =
        file.path == "docs/semantics.md" || file.lines.contains { $0.text.contains("their numbers are in parentheses here") }
    func full(_ number: String) -> String { number.contains(".") ? number : "\(section!).\(number)" }
    for line in file.lines {
        if let reason = line.text.components(between: "because: \"").first, reason.utf8.first.map(isDigit) ?? false {
            add(line, [String(reason.prefix { $0 != "\"" })])
        }
        guard line.prose.utf8.contains(where: isDigit) else { continue }
        let behindName = numbers(behind: "semantics", in: line.prose)
        add(line, behindName)
        if file.isPage {
            add(line, ["rule", "rules", "Rule"].flatMap { numbers(behind: $0, in: line.prose) })
            if !hasNumbersInParentheses { continue }
        }
        for piece in line.prose.split(separator: "(").dropFirst() where behindName.isEmpty {
            let inside = piece.prefix { $0 != ")" }
            if inside.utf8.allSatisfy({ isDigit($0) || "., ".utf8.contains($0) }) {
                add(line, parse(inside).map(\.text).filter { $0.contains(".") })
            }
        }
        guard file.path.hasPrefix("Tests/"), line.prose.hasPrefix("// ") else { continue }
        let text = trimmed(line.prose.dropFirst(3))
        if text.hasPrefix("MARK: ") {
            let numbers = parse(text.dropFirst(6).prefix { $0 != "," })
            if text.dropFirst(6).utf8.first.map(isDigit) ?? false {
                add(line, numbers.map(\.text).filter { $0.contains(".") || section != nil }.map(full))
            }
        } else if let number = parse(text).first, text.hasPrefix(number.text + "  "), number.text.contains(".") || section != nil {
            add(line, [full(number.text)])
        }
    }
    return found
}

/// The numbers that directly follow a word; "3.4 to 3.6" yields three numbers.
private func numbers(behind word: String, in text: Substring) -> [String] {
    var found: [String] = []
    for part in text.components(between: word, all: true) {
        let list = part.prefix { !";:)".contains($0) }
        guard list.first == " ", list.dropFirst().utf8.first.map(isDigit) ?? false else { continue }
        var last: (text: String, isRange: Bool)?
        for number in parse(list) {
            if let last, last.isRange, let range = range(last.text, number.text) { found += range }
            found.append(number.text)
            last = number
        }
    }
    return found
}

/// The rule numbers between two numbers of one section.
private func range(_ first: String, _ last: String) -> [String]? {
    let (first, last) = (first.split(separator: "."), last.split(separator: "."))
    guard first.count == 2, last.count == 2, first[0] == last[0], let low = Int(first[1]), let high = Int(last[1]), low < high else {
        return nil
    }
    return (low + 1..<high).map { "\(first[0]).\($0)" }
}

/// The numbers at the beginning of a text: "1.5, 1.7 and 9 to 11, for". Any word except "and", "or" and "to" ends the list.
private func parse(_ text: Substring) -> [(text: String, isRange: Bool)] {
    var found: [(text: String, isRange: Bool)] = []
    for word in text.split(separator: " ") {
        if word.utf8.first.map(isDigit) ?? false {
            var number = word.prefix { $0.isNumber || $0 == "." }
            while number.last == "." { number = number.dropLast() }  // ends: each turn removes a dot
            found.append((String(number), false))
        } else if word == "to", !found.isEmpty {
            found[found.count - 1].isRange = true
        } else if word != "and" && word != "or" {
            break
        }
    }
    return found
}

/// Returns "6" for docs/decisions/0006-one-libevent-level.md.
private func decisionNumber(_ file: Checkout.File) -> String? {
    guard file.folder == "docs/decisions", let name = file.path.split(separator: "/").last, let number = Int(name.prefix(4)) else {
        return nil
    }
    return String(number)
}

private func isDigit(_ byte: UInt8) -> Bool { byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9") }

extension Substring {
    /// The pieces after every other separator, such as the bold text between two `**`. With `all`, the pieces after each separator.
    fileprivate func components(between separator: String, all: Bool = false) -> [Substring] {
        guard let first = separator.utf8.first, utf8.contains(first) else { return [] }
        let parts = split(separator: separator, omittingEmptySubsequences: false)
        return parts.indices.dropFirst().filter { all || $0 % 2 == 1 }.map { parts[$0] }
    }
}

@Suite struct RuleNumberTests {
    @Test func `cited rules exist`() throws {
        let rules = Rules(try #require(Checkout.file(at: "docs/semantics.md")))
        #expect(rules.numbers.count > 100 && rules.sections.count >= 18)
        var count = 0
        for file in Checkout.files where file.path.hasSuffix(".swift") || file.isPage {
            count += citations(in: file).count
            for dead in rules.deadCitations(in: file) { Issue.record("\(dead)") }
        }
        #expect(count > 200)
    }

    @Test func `the check reads the rules that a page cites`() {
        let rules = Rules(Checkout.file("docs/semantics.md", Self.page))
        let page = Checkout.file("docs/a.md", "See rule 1.5, rules 5.1 and 5.2 (rule 5.15).\nRule 1.6 says so (rules 5.1 and 5.9).")
        #expect(rules.deadCitations(in: page).count == 2)
        let text = "their numbers are in parentheses here.\nNever early (5.1), and no drift (5.9, 1.7). It takes a while (1.29 s)."
        #expect(rules.deadCitations(in: Checkout.file("docs/a.md", text)).map { $0.contains("5.9") } == [true])
        #expect(rules.deadCitations(in: Checkout.file("docs/a.md", "Never early (5.9).")).isEmpty)
    }

    @Test func `the number of each rule begins with the number of its section`() throws {
        let rules = Rules(try #require(Checkout.file(at: "docs/semantics.md")))
        for rule in rules.misnumbered { Issue.record("docs/semantics.md, \(rule)") }
    }

    @Test func `each difference from CFRunLoop is on the page of differences`() throws {
        let semantics = try #require(Checkout.file(at: "docs/semantics.md"))
        let differing = semantics.cells(under: "Evidence").filter { $0.cell.components(between: "CF, not", all: true).isEmpty == false }
        let numbers = differing.flatMap { parse($0.first.dropFirst(2)).prefix(1).map(\.text) }
        let page = try #require(Checkout.file(at: "docs/cfrunloop.md")).cells(under: "Rule").map { String($0.cell) }
        #expect(numbers.count > 30)
        for number in Set(numbers).subtracting(page) { Issue.record("docs/cfrunloop.md has no row for rule \(number)") }
        for number in Set(page).subtracting(numbers) { Issue.record("rule \(number) of docs/cfrunloop.md does not say \"CF, not\"") }
    }

    @Test(arguments: ["| **1.5** A |", "| A |", "Text (**12.1**).", "## 21. Else\n| **2.1** A |"])
    func `the check reports a rule without a number of its section`(row: String) {
        let page = "## 2. Runs\n| Rule | Tests |\n|---|---|\n| **2.1, 2.2** A |\n| **2.3.1** A |\n\(row)\n\n| Other |\n|---|\n| A |"
        #expect(Rules(Checkout.file("docs/semantics.md", page)).misnumbered.count == 1)
    }

    @Test func `cited decisions exist`() {
        let decisions = Checkout.files.compactMap(decisionNumber)
        #expect(decisions.count >= 26 && Set(decisions).count == decisions.count)
        var count = 0
        for file in Checkout.files where !file.path.hasSuffix("RuleNumberTests.swift") {
            for line in file.lines {
                for number in ["decision", "decisions"].flatMap({ numbers(behind: $0, in: line.prose) }) {
                    count += 1
                    #expect(decisions.contains(number), "\(file.path):\(line.number) cites decision \(number)")
                }
            }
        }
        #expect(count > 20)
    }

    @Test func `every decision has the required parts, and is in the index`() throws {
        let index = try #require(Checkout.file(at: "docs/decisions/README.md"))
        for page in Checkout.files {
            guard let number = decisionNumber(page) else { continue }
            let name = page.path.split(separator: "/").last!
            #expect(index.lines.contains { $0.text.hasPrefix("| \(number) | [") && $0.text.contains("](\(name))") }, "\(name)")
            #expect(page.lines.first?.text.hasPrefix("# \(number). ") ?? false, "\(name)")
            let heads = page.lines.flatMap { $0.text.hasPrefix("**") ? $0.text.components(between: "**").prefix(1) : [] }
            let parts = heads.filter { ["Context.", "Decision.", "Measurement.", "Consequences.", "What would overturn it."].contains($0) }
            let required = ["Context.", "Decision.", "Consequences.", "What would overturn it."]
            #expect(parts.filter { $0 != "Measurement." }.map(String.init) == required, "\(name)")
        }
    }

    @Test func `no file refers to notes that are not in the checkout`() {
        for file in Checkout.files {
            for line in file.lines where line.prose.contains("design notes") { Issue.record("\(file.path):\(line.number)") }
        }
    }

    private static let page =
        "## 1. Runs\n## 5. Timers\n| **1.5** A |\n| **1.7** B |\n| **5.1, 5.2** C |\nText (**5.15**).\n| **5.3** |\n| **11.1.4** |"

    @Test(arguments: [
        "// A test (semantics 1.6):", "// A test (semantics 1.5, 2.1; 5.9 s):", "// Because of that (1.8).", "// Nothing (3.8).",
        "// 4.1  A rule",
        "// Timers (semantics 5):\n//  4  A rule", "// Timers (semantics 5):\n    // MARK: 4", "    // MARK: 1.6, from afar",
        "x(because: \"5.4\")",
        "/// As semantics 5.1 to 5.4 say.", "// Sections (semantics 2):", "// Ports (semantics 11.2):",
    ])
    func `the check reports a rule that does not exist`(text: String) {
        let rules = Rules(Checkout.file("docs/semantics.md", Self.page))
        #expect(rules.deadCitations(in: Checkout.file("Tests/A.swift", text)).count == 1)
    }

    @Test(arguments: [
        "// A test (semantics 1.5, 1.7, 5.15; RunLoop.swift):", "// Because of that (1.7, 5.1).", "// Nothing (since 3.8).",
        "// 5.1  A rule",
        "// Timers (semantics 5):\n//  3  A rule", "// Timers (semantics 5):\n    // MARK: 1 and 2", "x(because: \"5.2\")",
        "// Ports (semantics 11.1):",
        "/// As semantics 5.1 to 5.3 say.", "// Sections (semantics 1 and 5):", "// It takes 0.1 ms.", "let ratio = (1.29)",
        "//  0  1  mark",
    ])
    func `the check ignores a rule that exists, and numbers that are not rules`(text: String) {
        let rules = Rules(Checkout.file("docs/semantics.md", Self.page))
        #expect(rules.deadCitations(in: Checkout.file("Tests/A.swift", text)).isEmpty)
    }
}
