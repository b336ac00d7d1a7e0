/// Retains objects, in no order (decision 48). Each object stores its index in the bag; the index changes if another object is removed.
struct UnorderedBag<Object: AnyObject>: ~Copyable, @unchecked Sendable {
    // SAFETY: the owner of the bag guards it: the loop's lock or its thread.
    private var list = PlainList<Unmanaged<Object>>()
    deinit { for index in 0..<list.count { list[index].release() } }
    var count: Int { list.count }
    var isEmpty: Bool { list.count == 0 }
    /// Adds an object. Its index is the former `count`.
    @inline(__always) mutating func append(_ object: Object) { list.append(.passRetained(object)) }

    /// Removes an object, and calls `moved` with the one that takes its index, if any. The caller releases the returned reference outside the lock.
    @inline(__always) mutating func remove(_ object: Object, at index: Int, moved: (Object) -> Void) -> Unmanaged<Object> {
        let last = list.popLast()!  // the object is in the bag
        if index < list.count {
            list[index] = last
            Borrowed(last, keptBy: .list).use(moved)
        }
        return .passUnretained(object)
    }

    /// The last one first.
    mutating func takeAll() -> [Object] { (0..<list.count).map { _ in list.popLast()!.takeRetainedValue() } }  // so many are in the list
    /// Calls `body` with each object, unretained.
    func forEach(_ body: (Object) -> Void) { for index in 0..<list.count { Borrowed(list[index], keptBy: .list).use(body) } }

    func contains(_ object: Object, at index: Int) -> Bool {
        index < list.count && list[index].toOpaque() == Unmanaged.passUnretained(object).toOpaque()
    }

    /// Whether `isWanted` is true for one of the objects. Not asked about those behind it.
    func contains(where isWanted: (Object) -> Bool) -> Bool {
        for index in 0..<list.count where Borrowed(list[index], keptBy: .list).use(isWanted) { return true }
        return false
    }

    /// The objects for which `isWanted` is true, retained.
    func filter(_ isWanted: (Object) -> Bool) -> [Object] {
        var found: [Object] = []
        forEach { if isWanted($0) { found.append($0) } }
        return found
    }
}
