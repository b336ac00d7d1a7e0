extension RunLoop {
    /// What happened on one loop, ordered by start. Spans that are unfinished when the recording is taken have their duration so far.
    public struct Recording: Sendable {
        /// What an event is: a stretch of a run, a callout, or an instant.
        public enum Kind: String, Sendable, Hashable, CaseIterable {
            /// Spans that enclose the others.
            case run, pass, sleep
            /// A callout of an observer, or of a timer.
            case observer, timer
            /// A callout of a source of this kind.
            case customSource, descriptorSource, signalSource, processSource, socketSource, port, messagePort, wallTimer, clockChange
            /// A closure of `perform`, `performAndWait` or `performAsync`; one of `performBlock`.
            case perform, block
            /// A job of an actor or a task.
            case job
            /// The blocks of the main dispatch queue.
            case mainQueue
            /// Callbacks of a C library inside the wait; a pass of NIO that the module `EventLoopNIO` reports (depth 0, labelled `NIO`).
            case hostedLibrary
            /// `onInvalidation`, and `cancel` of a custom source.
            case invalidation
            /// An instant: another thread woke the loop.
            case wakeUp
        }

        /// One span or instant of a recording.
        public struct Event: Sendable, Hashable {
            /// What happened.
            public var kind: Kind
            /// In real time, whatever the loop's clock.
            public var start: Instant
            /// Zero for an instant.
            public var duration: Duration
            /// The mode of the innermost run.
            public var mode: Mode
            /// 1 in the outermost run.
            public var depth: Int
            /// Of the item that was called. Cut after 120 bytes of UTF-8.
            public var label: String?
            /// `file:line` where the item was made or the closure was queued; nil where there is no item.
            public var createdAt: String?
            /// The key of what the callout delivered; zero if nobody can have posted it.
            package var flow: UInt64 = 0
        }

        /// Code on the loop's thread gave something to a loop.
        package struct Post: Sendable, Hashable {
            /// The id of the loop that received it.
            package var target: UInt64
            /// The `flow` of the callout that delivers it.
            package var flow: UInt64
            package var at: Instant

            package init(to target: UInt64, flow: UInt64, at instant: Instant) {
                (self.target, self.flow, self.at) = (target, flow, instant)
            }
        }

        /// Ordered by start.
        public var events: [Event]
        /// Events that were overwritten because the ring was full.
        public var overwritten: Int

        /// Since when no event is missing; nil if none was overwritten. Events that began earlier and ended later are in the recording.
        package var completeSince: Instant?
        package var loopID: UInt64 = 0
        package var posts: [Post] = []
    }
}

extension RunLoop.Recording {
    /// A recording that no loop has made: another module shows what it knows on the same page.
    package init(loopID: UInt64) { self.init(events: [], overwritten: 0, loopID: loopID) }
}

extension RunLoop.Recording.Event {
    package init(kind: RunLoop.Recording.Kind, start: RunLoop.Instant, duration: Duration, label: String?, flow: UInt64) {
        self.init(kind: kind, start: start, duration: duration, mode: .default, depth: 1, label: label, flow: flow)
    }
}

extension RunLoop.Recording.Kind {
    private static let byCode = allCases
    /// The position among all kinds. An enumeration of so few cases without values is a byte that counts them; a test holds that.
    @inline(__always) var code: UInt8 { unsafeBitCast(self, to: UInt8.self) }
    init(code: UInt8) { self = Self.byCode[Int(code)] }
    /// A call of somebody's code; not a span that encloses others, and not an instant.
    var isCallout: Bool { Self.isCallout(code: code) }
    @inline(__always) static func isCallout(code: UInt8) -> Bool { code > Self.sleep.code && code != Self.wakeUp.code }
}

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
