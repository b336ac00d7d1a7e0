// A queue with a limit.

/// First in, first out. The caller keeps `count` within its limit.
struct DatagramQueue<Element> {
    private var elements: [Element?] = []
    private var head = 0

    var count: Int { elements.count - head }
    var isEmpty: Bool { count == 0 }

    mutating func append(_ element: Element) { elements.append(element) }

    /// The queue must not be empty.
    mutating func removeFirst() -> Element {
        let element = elements[head]!  // behind the head all are present
        elements[head] = nil
        head += 1
        if head == elements.count {
            elements.removeAll(keepingCapacity: head <= 256)
            head = 0
        } else if head >= 64 && head >= elements.count / 2 {
            elements.removeFirst(head)
            head = 0
        }
        return element
    }

    subscript(_ index: Int) -> Element {
        elements[head + index]!  // behind the head all are present
    }

    /// Keeps the elements for which `isKept` returns true, in their order.
    mutating func filter(_ isKept: (Element) -> Bool) {
        elements = elements[head...].filter { isKept($0!) }  // as above
        head = 0
    }

    mutating func removeAll() {
        elements = []
        head = 0
    }
}
