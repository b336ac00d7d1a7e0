extension Unmanaged {
    /// Calls `body` with the object, uncounted: what is measured is no count of references. The caller keeps the object alive.
    @inline(__always) func borrowed<R>(_ body: (Instance) -> R) -> R { _withUnsafeGuaranteedRef(body) }
}
