extension RunLoop {
    /// A likely mistake of the program, which the library has noticed and which would otherwise stay silent.
    ///
    /// Each is reported once: for each kind, and each creation site, or each loop and mode. docs/pitfalls.md explains every kind.
    public struct Warning: Sendable, Hashable, CustomStringConvertible {
        /// The mistakes that are noticed.
        public enum Kind: String, Sendable, Hashable, CaseIterable {
            /// `.common` was run. A loop runs in a single mode, so the run returned `.finished` at once.
            case runOfCommonModes
            /// A mode was run that never contained anything, so the run returned `.finished` at once.
            case runOfUnusedMode
            /// A loop was run again and again although each run returned `.finished` at once, which uses a whole processor.
            case repeatedFinishedRuns
            /// A repeating timer got an interval that is too short or negative.
            case shortInterval
            /// The descriptor of a source was closed before the source was invalidated.
            case closedDescriptor
            /// A source or timer was released that was never added to a loop, so its handler was never called.
            case unusedItem
            /// `add` returned false.
            case refusedItem
            /// `perform` or `performBlock` returned false.
            case refusedClosure
            /// `CFRunLoopStop` was called for a loop that did not run, while Core Foundation's of the thread did. Debug builds of EventLoopCF only.
            case otherLoopRuns
            /// A loop ended while a `StreamServer` listened on it, or a listener of the server failed.
            case endedUnderServer
            /// The handler of an `HTTPServer` threw, or answered with something that cannot be sent. Reported each time.
            case failedRequest
            /// So many different warnings were reported that no others will be.
            case furtherWarningsDropped
        }

        /// Which mistake.
        public var kind: Kind
        /// What happened, with the values, and what to do instead.
        public var message: String
        /// The label of the item.
        public var label: String?
        /// `file:line` where the item was made or the closure was queued; nil if there is none.
        public var createdAt: String?

        /// Makes a warning: for tests of warning handlers.
        public init(kind: Kind, message: String, label: String? = nil, createdAt: String? = nil) {
            (self.kind, self.message, self.label, self.createdAt) = (kind, message, label, createdAt)
        }

        /// The message, the label and the place, on one line.
        public var description: String { message + (label.map { " (label \(quoted($0)))" } ?? "") + (createdAt.map { " [\($0)]" } ?? "") }
    }
}
