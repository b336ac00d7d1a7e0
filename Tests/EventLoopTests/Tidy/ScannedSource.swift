// The declarations and the uses in a file, read from its tokens.

/// Declarations and uses of one file.
struct ScannedSource: Sendable {
    struct Declaration: Sendable {
        let name: String
        /// The last name components of the enclosing types, innermost last.
        let enclosing: [String]
        let isPrivate: Bool
        var isType = false
        var isExtension = false
        /// The types that the declaration inherits from or conforms to.
        var parents: [String] = []
    }

    struct Use: Sendable {
        enum Receiver: Sendable {
            case none, itself, other
            case named(String)
        }
        let name: String
        let line: Int
        let enclosing: [String]
        let isType: Bool
        let receiver: Receiver
    }

    private(set) var declarations: [Declaration] = []
    private(set) var uses: [Use] = []
    /// The parameters and local variables of functions.
    private(set) var locals: Set<String> = []
    private(set) var privateNames: Set<String> = []

    private enum Scope {
        case type(isPrivate: Bool)
        case code
    }

    private static let typeKeywords: Set<String> = ["class", "struct", "enum", "protocol", "extension", "actor"]
    private static let keywords: Set<String> = [
        "func", "var", "let", "case", "class", "struct", "enum", "protocol", "extension", "actor", "typealias", "associatedtype", "init",
        "deinit", "subscript", "return", "if", "else", "guard", "while", "for", "in", "switch", "default", "throw", "throws", "try",
        "await",
        "async", "self", "Self", "super", "nil", "true", "false", "where", "is", "as", "import", "public", "private", "fileprivate",
        "internal",
        "package", "static", "final", "override", "mutating", "borrowing", "consuming", "inout", "some", "any", "do", "catch", "defer",
        "break", "continue", "repeat", "get", "set", "didSet", "willSet", "indirect", "lazy", "weak", "unowned", "nonisolated",
        "convenience",
    ]

    let tokens: [Token]
    private var scopes: [Scope] = []
    /// The types among `scopes`.
    private var enclosing: [String] = []
    /// The number of private types in `enclosing`. Their members are private too.
    private var privateDepth = 0
    /// The type whose body begins at the next brace.
    private var opening: (name: String, isPrivate: Bool)?

    init(_ tokens: [Token]) {
        self.tokens = tokens
        var position = 0
        while position < tokens.count { position = scan(position) }  // ends: the position increases
    }

    private var declaresMembers: Bool {
        if case .code? = scopes.last { false } else { true }
    }

    private func text(_ position: Int) -> String { position >= 0 && position < tokens.count ? tokens[position].text : "" }
    private func isName(_ position: Int) -> Bool { position >= 0 && position < tokens.count && tokens[position].isName }

    /// Scans the token at the position, and returns the next position.
    private mutating func scan(_ position: Int) -> Int {
        let token = tokens[position]
        guard token.isName else {
            if token.first == UInt8(ascii: "{") { openBrace(position) } else if token.first == UInt8(ascii: "}") { closeBrace() }
            return position + 1
        }
        guard Self.keywords.contains(token.text) else {
            recordUse(position)
            return position + 1
        }
        switch token.text {
        case "func" where isName(position + 1):
            declare(text(position + 1), at: position)
            return position + 2
        case "var", "let": return declareVariables(position)
        case "case" where isEnumBody(position): return declareCases(position)
        case "typealias", "associatedtype":
            declareType(text(position + 1), at: position, parents: [], isExtension: false)
            return position + 2
        // Excludes `class func` and `case class`.
        case let keyword where Self.typeKeywords.contains(keyword) && isName(position + 1) && !Self.keywords.contains(text(position + 1)):
            return openType(position)
        default: return position + 1
        }
    }

    private mutating func openBrace(_ position: Int) {
        guard let type = opening else {
            scopes.append(.code)
            return collectClosureParameters(after: position)
        }
        scopes.append(.type(isPrivate: type.isPrivate))
        enclosing.append(type.name)
        if type.isPrivate { privateDepth += 1 }
        opening = nil
    }

    private mutating func closeBrace() {
        guard case .type(let isPrivate)? = scopes.popLast() else { return }
        enclosing.removeLast()
        if isPrivate { privateDepth -= 1 }
    }

    // MARK: Declarations

    private mutating func declare(_ name: String, at keyword: Int) {
        guard declaresMembers else {
            locals.insert(name)
            return
        }
        let isPrivate = isPrivate(keyword)
        if isPrivate { privateNames.insert(name) }
        declarations.append(Declaration(name: name, enclosing: enclosing, isPrivate: isPrivate))
    }

    private mutating func declareType(_ name: String, at keyword: Int, parents: [String], isExtension: Bool) {
        declarations.append(
            Declaration(
                name: name, enclosing: enclosing, isPrivate: isPrivate(keyword) || !declaresMembers, isType: true, isExtension: isExtension,
                parents: parents))
    }

    /// Whether `private` or `fileprivate` is among the modifiers in front of a keyword; `private(set)` is not.
    private func isPrivate(_ keyword: Int) -> Bool {
        if privateDepth > 0 { return true }
        var position = keyword - 1
        while position >= 0, tokens[position].isName || ["(", ")", "@"].contains(text(position)) {  // ends: the position decreases
            if ["private", "fileprivate"].contains(text(position)) && text(position + 1) != "(" { return true }
            if tokens[position].startsLine { return false }
            position -= 1
        }
        return false
    }

    /// Scans `let a = …`, `var a: A, b: B`, `let (a, b) = …`.
    private mutating func declareVariables(_ keyword: Int) -> Int {
        var position = keyword + 1
        if text(position) == "(" {
            while position < tokens.count, text(position) != ")" {  // ends: the position increases
                if isName(position) { declare(text(position), at: keyword) }
                position += 1
            }
            return position
        }
        guard isName(position) else { return position }
        declare(text(position), at: keyword)
        position += 1
        // The scan records the types of the list as uses when it reaches them.
        var next = position
        while next < tokens.count, !tokens[next].startsLine, !["=", "{", ";"].contains(text(next)) {  // ends: the position increases
            if text(next) == ",", isName(next + 1), text(next + 2) == ":" { declare(text(next + 1), at: keyword) }
            next += 1
        }
        return position
    }

    /// In a type's body `case` declares; in code it is a pattern.
    private func isEnumBody(_ position: Int) -> Bool {
        if case .type? = scopes.last {
            tokens[position].startsLine || text(position - 1) == "{" || text(position - 1) == "indirect"
        } else {
            false
        }
    }

    private mutating func declareCases(_ keyword: Int) -> Int {
        var (position, depth) = (keyword + 1, 0)
        var isExpected = true
        while position < tokens.count, !tokens[position].startsLine || isExpected {  // ends: the position increases
            switch text(position) {
            case "(": depth += 1
            case ")": depth -= 1
            case "," where depth == 0: isExpected = true
            case "}" where depth == 0: return position
            default:
                if isExpected, isName(position) { declare(text(position), at: keyword) } else if isName(position) { recordUse(position) }
                isExpected = false
            }
            position += 1
        }
        return position
    }

    private mutating func openType(_ keyword: Int) -> Int {
        var position = keyword + 1
        var name = text(position)
        let isExtension = text(keyword) == "extension"
        if isExtension { recordUse(position) }
        while text(position + 1) == "." {  // ends: the position increases
            position += 2
            name = text(position)
            if isExtension { recordUse(position) }
        }
        var parents: [String] = []
        var next = position + 1
        var isAfterWhere = false
        while next < tokens.count, text(next) != "{" {  // ends: the position increases
            if text(next) == "where" { isAfterWhere = true }
            if isName(next), !Self.keywords.contains(text(next)) {
                recordUse(next)
                // Takes the last name of `RunLoop.Source`.
                if !isAfterWhere && text(next + 1) != "." { parents.append(text(next)) }
            }
            next += 1
        }
        declareType(name, at: keyword, parents: parents, isExtension: isExtension)
        opening = (name, isPrivate(keyword) || !declaresMembers)
        return next
    }

    // MARK: Uses

    private mutating func recordUse(_ position: Int) {
        let name = text(position)
        let isType = tokens[position].isCapitalized
        var receiver = Use.Receiver.none
        if text(position - 1) == "." {
            var before = position - 2
            if ["?", "!"].contains(text(before)) { before -= 1 }
            if ["self", "Self", "super"].contains(text(before)) {
                receiver = .itself
            } else if isName(before), !Self.keywords.contains(text(before)), tokens[position - 1].followsClosely {
                receiver = .named(text(before))
            } else {
                receiver = .other
            }
        } else if !isType {
            // The name is a label or a parameter, not the second branch of a ternary.
            if text(position + 1) == ":" && text(position - 1) != "?" {
                locals.insert(name)
                return
            }
            if text(position - 1) == "for" || (text(position - 1) == "@") { locals.insert(name) }
        }
        uses.append(Use(name: name, line: tokens[position].line, enclosing: enclosing, isType: isType, receiver: receiver))
    }

    /// Scans `{ a, b in`, `{ (a: A) -> B in`.
    private mutating func collectClosureParameters(after brace: Int) {
        var (position, found) = (brace + 1, Set<String>())
        while position < tokens.count, !tokens[position].startsLine {  // ends: the position increases
            if text(position) == "in" { return locals.formUnion(found) }
            if isName(position) { found.insert(text(position)) } else if ["{", "}", ";", "="].contains(text(position)) { return }
            position += 1
        }
    }
}
