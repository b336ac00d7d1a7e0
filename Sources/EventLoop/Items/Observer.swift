import Synchronization

extension RunLoop {
    /// Is notified of the activities of a run (CFRunLoopObserver).
    ///
    /// Thread-safe. The handler runs on the loop's thread, with one activity at a time. Runs that are nested in the handler skip this
    /// observer. An observer is in one loop at a time. It does not keep a mode from being empty.
    public final class Observer: Sendable {
        /// The activities at which the handler is called.
        public let activities: Activity
        /// If false, the observer is notified once and is then invalid.
        public let repeats: Bool
        /// Observers are notified in ascending order; observers of equal order, in the order in which they were added.
        public let order: Int
        /// For warnings, recordings and `debugDescription`.
        public let label: String?
        let site: CreationSite
        let rundown = Rundown()
        /// The id of the loop that the observer is in, or zero. Changed under that loop's lock.
        let loopID = Atomic<UInt64>(0)

        // SAFETY: read and written under the lock of the loop that `loopID` names.
        @exclusivity(unchecked) nonisolated(unsafe) var modes = ModeSet()
        // SAFETY: as `modes`.
        nonisolated(unsafe) var isCommon = false
        // SAFETY: as `modes`.
        /// Whether the thread of a loop has added it, or has had it in a snapshot. For good: the loop may still walk that when the observer is back.
        nonisolated(unsafe) var wasSeen = false
        /// The id of the loop in whose call the handler is, or zero. Nested runs skip the observer, and so does a loop that the handler moved it to.
        let callingLoop = Atomic<UInt64>(0)
        private let handler: HandlerSlot<Handler>
        // SAFETY: set before another thread has the observer; afterwards only read.
        /// What another library of the package stores with the observer, which does not retain it. Set it before another thread has the observer.
        nonisolated(unsafe) package weak var attachment: (any AnyObject & Sendable)?
        private struct Handler: Sendable { let call: @Sendable (Observer, Activity) -> Void }

        /// Makes an observer of `activities`. See `CFRunLoopObserverCreate`.
        public init(
            activities: Activity, repeats: Bool = true, order: Int = 0, label: String? = nil, file: StaticString = #fileID,
            line: UInt = #line, handler: @escaping @Sendable (Observer, Activity) -> Void
        ) {
            (self.activities, self.repeats, self.order, self.label) = (activities, repeats, order, label)
            site = CreationSite(file, line)
            self.handler = HandlerSlot(Handler(call: handler))
        }

        /// False after the observer was invalidated, or after a non-repeating observer was notified. Thread-safe.
        public var isValid: Bool { rundown.isValid }
        @inline(__always) var isFiring: Bool { callingLoop.load(ordering: .acquiring) != 0 }
        /// The caller must hold a use of `rundown`.
        @inline(__always) func callHandler(_ activity: Activity) { /* DOES CALLOUT */ handler.with { $0.handlers.call(self, activity) } }
        /// Releases the handler. Only the caller that ended the last use of `rundown` may call it.
        func finish() { /* DOES CALLOUT */ handler.clear() }
    }

    /// The moments of a run that observers are notified of. The raw values are those of CFRunLoopActivity.
    public struct Activity: OptionSet, Sendable, Hashable, CustomStringConvertible {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        /// Step 1: a run begins.
        public static let entry = Activity(rawValue: 1 << 0)
        /// Step 2: at the start of each pass.
        public static let beforeTimers = Activity(rawValue: 1 << 1)
        /// Step 3: custom sources are performed next.
        public static let beforeSources = Activity(rawValue: 1 << 2)
        /// Step 6: the thread is about to sleep.
        public static let beforeWaiting = Activity(rawValue: 1 << 5)
        /// Step 8: the thread has woken, and the events that woke it have not been handled yet.
        public static let afterWaiting = Activity(rawValue: 1 << 6)
        /// Step 10: a run ends.
        public static let exit = Activity(rawValue: 1 << 7)
        /// All six.
        public static let all: Activity = [.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit]

        public var description: String {
            let names: [(Activity, String)] = [
                (.entry, "entry"), (.beforeTimers, "beforeTimers"), (.beforeSources, "beforeSources"), (.beforeWaiting, "beforeWaiting"),
                (.afterWaiting, "afterWaiting"), (.exit, "exit"),
            ]
            let known = names.filter { contains($0.0) }.map(\.1)
            let rest = rawValue & ~Activity.all.rawValue
            return "[" + (rest == 0 ? known : known + ["0x" + String(rest, radix: 16)]).joined(separator: ", ") + "]"
        }
    }
}
