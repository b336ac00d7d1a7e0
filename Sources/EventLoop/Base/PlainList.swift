// An array without copy-on-write, for data that the loop's lock guards: it saves the uniqueness check of each change.
//
// Lifecycle of the storage: allocated here, grown by doubling, freed in deinit. One owner.

/// A growing array of trivial values.
struct PlainList<Element: BitwiseCopyable>: ~Copyable, @unchecked Sendable {
    // SAFETY: the owner of the list guards it: the loop's lock or its thread.
    private var storage: UnsafeMutablePointer<Element>
    private var capacity = 0
    private(set) var count = 0

    init() { storage = .allocate(capacity: 0) }
    deinit { storage.deallocate() }

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
        if count == capacity { grow() }
        storage[count] = element
        count += 1
    }

    @inline(__always)
    mutating func popLast() -> Element? {
        if count == 0 { return nil }
        count -= 1
        return storage[count]
    }

    @inline(never)
    private mutating func grow() {
        let larger = max(8, capacity * 2)
        let new = UnsafeMutablePointer<Element>.allocate(capacity: larger)
        new.moveInitialize(from: storage, count: count)
        storage.deallocate()
        (storage, capacity) = (new, larger)
    }
}
