// The slowest callouts of a loop, as their readers see them.

extension RunLoop {
    /// One of the longest callouts of a loop.
    public struct SlowCallout: Sendable, Hashable {
        /// What was called.
        public var kind: Recording.Kind
        /// Of the item that was called; nil if it has none.
        public var label: String?
        /// `file:line` where the item was made or the closure was queued; nil where there is no item.
        public var createdAt: String?
        /// Of the item's own callout, nested runs included.
        public var duration: Duration
        /// All callouts of that place of creation since it entered the list.
        public var count: UInt64
    }
}
