// An array without copy-on-write, for data that the loop's lock guards: it saves the uniqueness check of each change.

/// A growing array of trivial values.
struct PlainList<Element: BitwiseCopyable>: ~Copyable, @unchecked Sendable {
    // SAFETY: the owner of the list guards it: the loop's lock or its thread.
    private var storage = GrowingMemory<Element>()
    private(set) var count = 0

    init() {}

    @inline(__always)
    subscript(index: Int) -> Element {
        get {
            assert(index >= 0 && index < count, "index out of range")
            return storage[index]
        }
        set {
            assert(index >= 0 && index < count, "index out of range")
            storage[index] = newValue
        }
    }

    @inline(__always)
    mutating func append(_ element: Element) {
        if count == storage.capacity { storage.grow(to: count + 1) }
        storage[count] = element
        count += 1
    }

    @inline(__always)
    mutating func popLast() -> Element? {
        if count == 0 { return nil }
        count -= 1
        return storage[count]
    }

    /// Keeps the memory.
    mutating func removeAll() { count = 0 }
}
