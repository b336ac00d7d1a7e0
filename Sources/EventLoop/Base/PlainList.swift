import EventLoopLibC

/// A growing array of trivial values (decision 48), without copy-on-write: no change checks for uniqueness. It doubles while it is small, then grows
/// by a quarter: else nearly half the memory of 100,000 timers is unused. Lifecycle of the storage: made and moved by realloc, freed in deinit.
struct PlainList<Element: BitwiseCopyable>: ~Copyable, @unchecked Sendable {
    // SAFETY: the owner of the list guards it: the loop's lock or its thread.
    private var storage: UnsafeMutablePointer<Element>
    private(set) var capacity = 0
    private(set) var count = 0
    /// The address is never read.
    init() { storage = UnsafeMutablePointer(bitPattern: MemoryLayout<Element>.alignment)! }
    deinit { if capacity > 0 { free(storage) } }
    /// The address of the first element. Valid until the list grows.
    @inline(__always) var first: UnsafeMutablePointer<Element> { storage }

    @inline(__always) subscript(index: Int) -> Element {
        _read {
            assert(index >= 0 && index < count, "index out of range")
            yield storage[index]
        }
        nonmutating _modify {
            assert(index >= 0 && index < count, "index out of range")
            yield &storage[index]
        }
    }

    @inline(__always) mutating func append(_ element: Element) {
        if count == capacity { grow(to: count + 1) }
        storage[count] = element
        count += 1
    }

    /// Appends an element that has whatever value the memory has. The caller sets it.
    @inline(__always) mutating func appendUninitialized() {
        if count == capacity { grow(to: count + 1) }
        count += 1
    }

    /// Appends `element` until the list has `least` elements at the least and its memory is full.
    @inline(never) mutating func extend(to least: Int, repeating element: Element) {
        if least > capacity { grow(to: least) }
        (storage + count).initialize(repeating: element, count: capacity - count)
        count = capacity
    }

    @inline(__always) mutating func popLast() -> Element? {
        if count == 0 { return nil }
        count -= 1
        return storage[count]
    }

    /// Keeps the memory.
    mutating func removeAll() { count = 0 }

    @inline(never) private mutating func grow(to least: Int) {
        let larger = max(8, capacity + (capacity < 1_024 ? capacity : capacity / 4), least)
        let size = larger * MemoryLayout<Element>.stride
        guard let new = realloc(capacity == 0 ? nil : storage, size) else {
            preconditionFailure("a run loop's lists need \(size) bytes, and the system refuses them")
        }
        (storage, capacity) = (new.assumingMemoryBound(to: Element.self), larger)
    }
}
