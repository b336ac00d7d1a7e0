// Memory for an array that only grows.
//
// Lifecycle of the storage: allocated with malloc by the first `grow`, moved by realloc, freed in deinit. One owner.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Room for trivial values. What it contains is the owner's business.
///
/// It doubles while it is small, and grows by a quarter after that: the memory of 100,000 timers is otherwise nearly half unused. A large
/// block is moved by the kernel, page by page, without a copy.
struct GrowingMemory<Element: BitwiseCopyable>: ~Copyable, @unchecked Sendable {
    // SAFETY: the owner guards it: a lock or a thread.
    private var storage: UnsafeMutablePointer<Element>?
    private(set) var capacity = 0

    init() {}
    deinit { free(storage) }

    /// The values, up to `capacity`. Valid until `grow`.
    var first: UnsafeMutablePointer<Element> {
        @inline(__always) get { storage.unsafelyUnwrapped }
    }

    @inline(__always)
    subscript(index: Int) -> Element {
        _read {
            assert(index >= 0 && index < capacity, "index out of range")
            yield storage.unsafelyUnwrapped[index]
        }
        nonmutating _modify {
            assert(index >= 0 && index < capacity, "index out of range")
            yield &storage.unsafelyUnwrapped[index]
        }
    }

    /// Makes room for `count` values at least. The new room contains whatever the memory contained.
    @inline(never)
    mutating func grow(to count: Int) {
        let larger = max(8, capacity + (capacity < 1_024 ? capacity : capacity / 4), count)
        let size = larger * MemoryLayout<Element>.stride
        guard let new = realloc(storage, size) else {
            preconditionFailure("a run loop's lists need \(size) bytes, and the system refuses them")
        }
        (storage, capacity) = (new.assumingMemoryBound(to: Element.self), larger)
    }
}
