// The priority of a ready source.

extension RunLoop {
    /// Which of several ready sources the loop serves first. For sources that the kernel makes ready.
    ///
    /// A pass serves the sources of the most urgent ready priority, and asks the kernel again before it serves a lower one. So a source
    /// that is always ready starves sources of lower priorities. It does not starve events of C libraries on the mode's base, and they do
    /// not starve it: they have libevent's own priorities.
    public struct Priority: Sendable, Hashable, Comparable {
        let level: Int32
        public static let high = Priority(level: 0)
        public static let `default` = Priority(level: 1)
        public static let low = Priority(level: 2)
        public static func < (lhs: Self, rhs: Self) -> Bool { lhs.level < rhs.level }
    }
}
