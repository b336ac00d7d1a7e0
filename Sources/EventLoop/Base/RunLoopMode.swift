extension RunLoop {
    /// The name of a set of sources, timers and observers (CFRunLoopMode). Names compare by value. Any string is a name.
    ///
    /// Foundation's and CoreFoundation's texts are aliases: `Mode("kCFRunLoopDefaultMode")` and `Mode("NSDefaultRunLoopMode")` are `.default`,
    /// `Mode("kCFRunLoopCommonModes")` and `Mode("NSRunLoopCommonModes")` are `.common`, in their `rawValue`, too.
    public struct Mode: RawRepresentable, Hashable, Sendable, ExpressibleByStringInterpolation, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = Self.canonicalText(rawValue) }
        /// The mode of that name.
        public init(_ rawValue: String) { self.rawValue = Self.canonicalText(rawValue) }
        public init(stringLiteral value: String) { self.rawValue = Self.canonicalText(value) }
        public var description: String { rawValue }
        /// The mode that `run()` runs, and to which items are added unless a call names another (kCFRunLoopDefaultMode).
        public static let `default` = Mode("default")
        /// Stands for every mode in `commonModes`. A loop cannot run in it.
        public static let common = Mode("common")
        /// For runs that wait for a reply (NSConnectionReplyMode). An ordinary mode.
        public static let connectionReply = Mode("connectionReply")
        /// For modal runs (NSModalPanelRunLoopMode). An ordinary mode.
        public static let modalPanel = Mode("modalPanel")
        /// For runs that track one thing (NSEventTrackingRunLoopMode). An ordinary mode.
        public static let eventTracking = Mode("eventTracking")
        /// `[.common]`, the default of calls that take modes: an array literal as a default argument would allocate at every call.
        public static let onlyCommon: [Mode] = [.common]
        /// `[.default]`, likewise.
        public static let onlyDefault: [Mode] = [.default]

        /// Without this, code that runs the mode "kCFRunLoopDefaultMode" would run an empty mode, return at once, and spin.
        @inline(__always) private static func canonicalText(_ text: String) -> String {
            20...21 ~= text.utf8.count ? canonicalLongText(text) : text  // most names have another length
        }

        private static func canonicalLongText(_ text: String) -> String {
            switch text {
            case "kCFRunLoopDefaultMode", "NSDefaultRunLoopMode": "default"
            case "kCFRunLoopCommonModes", "NSRunLoopCommonModes": "common"
            default: text
            }
        }
    }
}
