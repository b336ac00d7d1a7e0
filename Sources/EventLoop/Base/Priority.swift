extension RunLoop {
    /// Which of several ready sources the loop serves first. For sources that the kernel makes ready.
    ///
    /// A pass serves the sources of the most urgent ready priority, and asks the kernel again before it serves a lower one. So a source
    /// that is always ready starves sources of lower priorities. It does not starve events of C libraries on the mode's base, and they do
    /// not starve it: they have libevent's own priorities.
    public struct Priority: Sendable, Hashable, Comparable {
        private let byte: Int8
        var level: Int32 { Int32(byte) }
        /// Served before ready sources of the other priorities.
        public static let high = Priority(byte: 0)
        /// What sources have unless they are made with another.
        public static let `default` = Priority(byte: 1)
        /// Served when no source of another priority is ready.
        public static let low = Priority(byte: 2)
        public static func < (lhs: Self, rhs: Self) -> Bool { lhs.level < rhs.level }
    }
}
