// Walking a list of objects without counting references.

extension Collection where Element: AnyObject {
    /// Calls `body` with each object, lent: whoever holds the list keeps it as it is meanwhile.
    @inline(__always)
    func forEachUnretained(_ body: (Element) -> Void) {
        for index in indices { Unmanaged.passUnretained(self[index])._withUnsafeGuaranteedRef(body) }
    }
}
