// Rule proved here:
// - No lock has a bare closure as its value. The closure is passed to generic code, `inout`, and the compiler wraps it twice for that, and stores the
//   wrapped one: so each access makes each later call longer, until the stack is full. A closure in a structure or a class is not wrapped.

import Testing

@Suite struct LockedClosureTests {
    @Test func `no lock has a bare closure as its value`() {
        let sources = Checkout.files.filter { $0.path.hasPrefix("Sources/") && $0.path.hasSuffix(".swift") }
        // `typealias Handler = @Sendable (Int) -> Void`
        let closures = Set(
            sources.flatMap(\.lines).filter { $0.text.contains("typealias ") && $0.text.contains("->") }
                .compactMap { $0.text.split { $0 == " " || $0 == "<" }.drop { $0 != "typealias" }.dropFirst().first })
        #expect(!closures.isEmpty)
        var found = 0
        for file in sources {
            for line in file.lines {
                for lock in ["LoopLock<", "Mutex<"] {
                    guard let range = line.text.firstRange(of: lock), !line.text.contains("//") else { continue }
                    found += 1
                    let value = line.text[range.upperBound...]
                    // The elements of an array or a dictionary are not wrapped in place.
                    let isBare = !value.hasPrefix("[") && value.contains("->") || closures.contains { isAlias($0, value) }
                    #expect(!isBare, "\(file.path):\(line.number): a lock of a bare closure; put it into a structure")
                }
            }
        }
        #expect(found >= 20)
    }

    private func isAlias(_ name: Substring, _ value: Substring) -> Bool { value.hasPrefix("\(name)>") || value.hasPrefix("\(name)?>") }
}
