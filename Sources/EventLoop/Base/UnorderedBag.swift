// Objects in no order, for what the loop's lock guards.
//
// Lifecycle of the storage: see `PlainList`. The bag retains its objects.

/// Holds objects, in no order; each knows its index, which changes when another one leaves.
struct UnorderedBag<Object: AnyObject>: ~Copyable, @unchecked Sendable {
    // SAFETY: guarded by whoever owns the list: the loop's lock, or its thread.
    private var list = PlainList<Unmanaged<Object>>()

    deinit { for index in 0..<list.count { list[index].release() } }

    var count: Int { list.count }
    var isEmpty: Bool { list.count == 0 }

    /// For as long as the list has it.
    @inline(__always)
    func reference(_ index: Int) -> Unmanaged<Object> { list[index] }

    /// Holds one more object, at the index that `count` was.
    @inline(__always)
    mutating func append(_ object: Object) { list.append(.passRetained(object)) }

    /// Takes an object out; the last one comes to its place. The caller gets the list's hold on it, and releases it outside the lock.
    @inline(__always)
    mutating func remove(_ object: Object, at index: Int, moved: (Object) -> Void) -> Unmanaged<Object> {
        let last = list.popLast()!  // the object is in the list
        if index < list.count {
            list[index] = last
            last._withUnsafeGuaranteedRef(moved)
        }
        return .passUnretained(object)
    }

    /// Gives all away.
    mutating func takeAll() -> [Object] {
        var all: [Object] = []
        while let last = list.popLast() {  // ends: one goes a turn
            all.append(last.takeRetainedValue())
        }
        return all.reversed()
    }

    /// Lends each.
    func forEach(_ body: (Object) -> Void) {
        for index in 0..<list.count { list[index]._withUnsafeGuaranteedRef(body) }
    }

    func contains(_ object: Object, at index: Int) -> Bool {
        index < list.count && list[index].toOpaque() == Unmanaged.passUnretained(object).toOpaque()
    }

    /// Holds on those that `isWanted` says.
    func filter(_ isWanted: (Object) -> Bool) -> [Object] {
        var found: [Object] = []
        forEach { if isWanted($0) { found.append($0) } }
        return found
    }
}
