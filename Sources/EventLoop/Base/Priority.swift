// How urgent a ready source is.

extension RunLoop {
    /// Which of several ready kernel-signalled sources is served first.
    ///
    /// A pass serves the most urgent level that is ready and asks the kernel again before going lower. A source that is always
    /// ready at a more urgent level therefore starves the levels below it. Events that C libraries have put on the mode's base are not
    /// among them: these have libevent's own priorities, and neither side starves the other.
    public struct Priority: Sendable, Hashable, Comparable {
        let level: Int32
        public static let high = Priority(level: 0)
        public static let `default` = Priority(level: 1)
        public static let low = Priority(level: 2)
        public static func < (lhs: Self, rhs: Self) -> Bool { lhs.level < rhs.level }
    }
}
