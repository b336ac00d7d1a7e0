// The slowest callouts of a loop, as their readers see them.

extension RunLoop {
    /// One of the longest callouts of a loop.
    public struct SlowCallout: Sendable, Hashable {
        public var kind: Recording.Kind
        public var label: String?
        public var createdAt: String?
        /// Of the item's own callout, nested runs included.
        public var duration: Duration
        /// All callouts of that place of creation since it entered the list.
        public var count: UInt64
    }
}
