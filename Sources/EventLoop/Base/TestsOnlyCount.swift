// A count that only tests read.

#if DEBUG

/// Takes no room and no instruction in release builds.
struct TestsOnlyCount: Sendable {
    private(set) var value = 0

    @inline(__always)
    mutating func increment() { value += 1 }
}

#else

struct TestsOnlyCount: Sendable {
    @inline(__always)
    mutating func increment() {}
}

#endif
