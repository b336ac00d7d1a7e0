// Takes the command line apart.

struct ArgumentReader {
    private var rest: ArraySlice<String>
    /// The argument of the last `option()`, its name, and the value after "=".
    private var argument = ""
    private var name = ""
    private var attached: String?

    init(_ arguments: some Sequence<String>) {
        rest = Array(arguments)[...]
    }

    /// The first argument, if it is not an option.
    mutating func command() -> String? {
        guard let first = rest.first, !first.hasPrefix("-") else { return nil }
        return rest.popFirst()
    }

    /// The name of the next option. Accepts `--port 8080` and `--port=8080`.
    mutating func option() -> String? {
        guard let next = rest.popFirst() else { return nil }
        argument = next
        let parts = next.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        name = String(parts[0])
        attached = parts.count > 1 ? String(parts[1]) : nil
        return name
    }

    var hasNoValue: Bool { attached == nil }

    mutating func number(_ range: ClosedRange<Int>) throws(DemoError) -> Int {
        let wanted = "a number from \(range.lowerBound) to \(range.upperBound)"
        let text = try text(wanted)
        guard let value = Int(text), range.contains(value) else { throw .usage("\(name) takes \(wanted), not '\(text)'") }
        return value
    }

    mutating func text(_ what: String) throws(DemoError) -> String {
        guard let text = attached ?? rest.popFirst() else { throw .usage("\(name) needs \(what)") }
        return text
    }

    func unknown(_ command: String) -> DemoError {
        let kind = argument.hasPrefix("-") ? "option" : "argument"
        return .usage("\(command) has no \(kind) '\(argument)'; --help explains the command line")
    }
}
