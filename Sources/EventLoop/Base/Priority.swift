extension RunLoop {
    /// Which of several ready sources the loop serves first. For sources that the kernel makes ready.
    ///
    /// A pass serves the sources of the most urgent ready priority, and asks the kernel again before it serves a lower one: a source that is always
    /// ready starves lower priorities. It and events of C libraries, which have libevent's own priorities, do not starve each other.
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
