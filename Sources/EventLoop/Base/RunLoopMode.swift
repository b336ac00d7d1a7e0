// The name of a mode.

extension RunLoop {
    /// The name of a set of sources, timers and observers (CFRunLoopMode). Names compare by value. Any string is a name.
    public struct Mode: RawRepresentable, Hashable, Sendable, ExpressibleByStringInterpolation, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public init(_ rawValue: String) { self.rawValue = rawValue }
        public init(stringLiteral value: String) { self.rawValue = value }
        public var description: String { rawValue }
        public static let `default` = Mode("default")
        /// Stands for every mode in `commonModes`. A loop cannot run in it.
        public static let common = Mode("common")
        public static let connectionReply = Mode("connectionReply")
        public static let modalPanel = Mode("modalPanel")
        public static let eventTracking = Mode("eventTracking")

        // An array literal as a default argument allocates at every call.
        public static let onlyCommon: [Mode] = [.common]
        public static let onlyDefault: [Mode] = [.default]
    }
}
