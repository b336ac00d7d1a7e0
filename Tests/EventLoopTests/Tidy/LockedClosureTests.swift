// Rule proved here:
// - No bare closure is stored where generic code changes it in place, or moves it on: in a lock, a `LoopBound`, or an element of a queue. Nor is a
//   variable with a closure exchanged by `swap`. The compiler wraps a closure for generic code, and wraps it again when it comes back, and stores the
//   wrapped one: so each access makes each later call longer, until the stack is full. A closure in a structure or a class is not wrapped.
//
// `HandlerSlot` may have one, because it is a constant there; so may `Optional.take`, which leaves nil behind.

import Testing

@Suite struct LockedClosureTests {
    private static let sources = Checkout.files.filter {
        ($0.path.hasPrefix("Sources/") || $0.path.hasPrefix("Examples/Sources/")) && $0.path.hasSuffix(".swift")
    }

    @Test func `no lock and no queue has a bare closure as its value`() {
        // `typealias Handler = @Sendable (Int) -> Void`
        let closures = Set(
            Self.sources.flatMap(\.lines).filter { $0.text.contains("typealias ") && $0.text.contains("->") }
                .compactMap { $0.text.split { $0 == " " || $0 == "<" }.drop { $0 != "typealias" }.dropFirst().first })
        #expect(!closures.isEmpty)
        var found = 0
        for file in Self.sources {
            for line in file.lines where !line.text.contains("//") {
                for container in ["LoopLock<", "Mutex<", "LoopBound<", "WallAlarm<", "Deque<", "LinkedQueue<", "DatagramQueue<"] {
                    guard let range = line.text.firstRange(of: container) else { continue }
                    found += 1
                    let value = argument(line.text[range.upperBound...])
                    // The elements of an array or a dictionary are not wrapped in place.
                    let isBare = !value.hasPrefix("[") && value.contains("->") || closures.contains { isAlias($0, value) }
                    #expect(!isBare, "\(file.path):\(line.number): \(container)\(value)> has a bare closure; put it into a structure")
                }
            }
        }
        #expect(found >= 60)
    }

    @Test func `no variable with a bare closure is swapped`() {
        // `var handler: (@Sendable (Int) -> Void)?`
        let variables = Set(
            Self.sources.flatMap(\.lines).compactMap { line -> Substring? in
                guard let start = line.text.firstRange(of: "var "), line.text.contains("->") else { return nil }
                let parts = line.text[start.upperBound...].split(separator: ":", maxSplits: 1)
                guard parts.count == 2, parts[1].hasPrefix(" (") || parts[1].hasPrefix(" @Sendable") else { return nil }
                return parts[0]
            })
        #expect(variables.contains("closedHandler"))
        var found = 0
        for file in Self.sources {
            for line in file.lines {
                guard let range = line.text.firstRange(of: "swap(&") else { continue }
                found += 1
                // Each argument without what it is a member of.
                let arguments = line.text[range.upperBound...].split { $0 == "," || $0 == ")" }.prefix(2)
                let names = arguments.compactMap { argument in argument.split { !$0.isLetter && !$0.isNumber }.last }
                #expect(
                    variables.isDisjoint(with: names), "\(file.path):\(line.number): swap of a bare closure; put it into a structure")
            }
        }
        #expect(found >= 10)
    }

    private func isAlias(_ name: Substring, _ value: Substring) -> Bool {
        value == name || value.hasSuffix("?") && value.dropLast() == name
    }

    /// `Value` of `Value>(…)`.
    private func argument(_ text: Substring) -> Substring {
        var (depth, last) = (1, Character(" "))
        for index in text.indices {
            if text[index] == "<" { depth += 1 }
            if text[index] == ">" && last != "-" { depth -= 1 }
            if depth == 0 { return text[..<index] }
            last = text[index]
        }
        return text
    }
}
