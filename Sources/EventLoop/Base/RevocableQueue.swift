// Things in the order in which they came, any of which may be taken back.

/// First in, first out; an element is taken out of the middle by the ticket that it was given. Each operation is O(1) in the mean.
struct RevocableQueue<Element: Sendable>: Sendable {
    typealias Ticket = UInt64

    private var elements: [Ticket: Element] = [:]
    /// No element has a ticket before `head`; the next one gets `tail`.
    private var head: Ticket = 1
    private var tail: Ticket = 1
    /// How many places were looked at.
    private(set) var testsOnlySteps = 0

    var isEmpty: Bool { elements.isEmpty }
    var count: Int { elements.count }
    /// By ticket; of two, the one with the lesser came first.
    var entries: [Ticket: Element] { elements }

    mutating func append(_ element: Element) -> Ticket {
        defer { tail += 1 }
        elements[tail] = element
        return tail
    }

    var first: Element? {
        mutating get {
            if elements.isEmpty { head = tail }
            while head < tail {  // ends: the head rises
                testsOnlySteps += 1
                if let element = elements[head] { return element }
                head += 1
            }
            return nil
        }
    }

    /// Nil when it is not there any more.
    @discardableResult
    mutating func remove(_ ticket: Ticket) -> Element? {
        testsOnlySteps += 1
        return elements.removeValue(forKey: ticket)
    }

    mutating func removeFirst() -> Element? {
        guard let element = first else { return nil }
        remove(head)
        return element
    }

    /// All of them, in their order.
    mutating func removeAll() -> [Element] {
        defer { (elements, head) = ([:], tail) }
        return elements.sorted { $0.key < $1.key }.map(\.value)
    }
}
