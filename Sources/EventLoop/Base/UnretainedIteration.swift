// Iteration over objects without reference counting.

extension Collection where Element: AnyObject {
    /// Calls `body` with each object, unretained. The caller must keep the collection unchanged during the calls.
    @inline(__always)
    func forEachUnretained(_ body: (Element) -> Void) {
        for index in indices { Borrowed(self[index], keptBy: .list).use(body) }
    }
}
