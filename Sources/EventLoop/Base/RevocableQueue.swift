// A queue with removal from the middle by ticket.

/// First in, first out. `append` returns a ticket, with which the element can be removed from the middle. Each operation is O(1) amortized.
struct RevocableQueue<Element: Sendable>: Sendable {
    typealias Ticket = UInt64

    private var elements: [Ticket: Element] = [:]
    /// No element has a ticket below `head`. The next element gets the ticket `tail`.
    private var head: Ticket = 1
    private var tail: Ticket = 1
    /// How many places were examined.
    private(set) var testsOnlySteps = 0

    var isEmpty: Bool { elements.isEmpty }
    var count: Int { elements.count }
    /// The elements by ticket. Tickets increase in the order of insertion.
    var entries: [Ticket: Element] { elements }

    mutating func append(_ element: Element) -> Ticket {
        defer { tail += 1 }
        elements[tail] = element
        return tail
    }

    var first: Element? {
        mutating get {
            if elements.isEmpty { head = tail }
            while head < tail {  // ends: the head increases
                testsOnlySteps += 1
                if let element = elements[head] { return element }
                head += 1
            }
            return nil
        }
    }

    /// Removes the element with the ticket; nil if it is not in the queue any more.
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

    /// Removes all elements, and returns them in order.
    mutating func removeAll() -> [Element] {
        defer { (elements, head) = ([:], tail) }
        return elements.sorted { $0.key < $1.key }.map(\.value)
    }
}
