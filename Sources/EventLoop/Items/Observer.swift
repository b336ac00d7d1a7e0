// What an observer is, apart from any loop. Loop/RunLoop+Observers.swift notifies it.

import Synchronization

extension RunLoop {
    /// Is told of the steps of a run (CFRunLoopObserver).
    ///
    /// Thread-safe. The handler runs on the loop's thread, with one activity at a time; while it runs, nested runs skip this observer.
    /// An observer is in one loop at a time; it does not keep a mode from being empty.
    public final class Observer: Sendable {
        public let activities: Activity
        /// False: the first activity of the mask is the only one, and the observer is invalid then.
        public let repeats: Bool
        /// Observers are told in ascending order; equal ones in the order they were added.
        public let order: Int
        public let label: String?
        let site: CreationSite

        let rundown = Rundown()
        /// The id of the loop that the observer is in; zero when in none. Changed under that loop's lock.
        let loopID = Atomic<UInt64>(0)

        // SAFETY: read and written under the lock of the loop that `loopID` names.
        @exclusivity(unchecked) nonisolated(unsafe) var modes = ModeSet()
        // SAFETY: as `modes`.
        nonisolated(unsafe) var isCommon = false
        /// The handler is running: nested runs, and another loop that the handler has handed the observer to, skip it.
        let isFiring = Atomic<Bool>(false)
        private let handler: HandlerSlot<Handler>

        private struct Handler: Sendable {
            let call: @Sendable (Observer, Activity) -> Void
        }

        /// Makes an observer of `activities`. See `CFRunLoopObserverCreate`.
        public init(
            activities: Activity, repeats: Bool = true, order: Int = 0, label: String? = nil, file: StaticString = #fileID,
            line: UInt = #line, handler: @escaping @Sendable (Observer, Activity) -> Void
        ) {
            self.activities = activities
            self.repeats = repeats
            self.order = order
            self.label = label
            site = CreationSite(file, line)
            self.handler = HandlerSlot(Handler(call: handler))
        }

        /// False once the observer was invalidated, or has been told its only time. Thread-safe.
        public var isValid: Bool { rundown.isValid }

        /// The caller holds a use of `rundown`.
        @inline(__always)
        func callHandler(_ activity: Activity) { /* DOES CALLOUT */
            handler.with { $0.handlers.call(self, activity) }
        }

        /// Lets the handler go. For the one whom `rundown` told that nobody can call it any more.
        func finish() {
            handler.clear()
        }
    }

    /// The steps of a run that observers are told of. The raw values are CFRunLoopActivity's.
    public struct Activity: OptionSet, Sendable, Hashable, CustomStringConvertible {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        /// Step 1: a run begins.
        public static let entry = Activity(rawValue: 1 << 0)
        /// Step 2: at the start of each pass.
        public static let beforeTimers = Activity(rawValue: 1 << 1)
        /// Step 3: custom sources are looked at next.
        public static let beforeSources = Activity(rawValue: 1 << 2)
        /// Step 6: the thread is about to sleep.
        public static let beforeWaiting = Activity(rawValue: 1 << 5)
        /// Step 8: the thread woke; what woke it has not been handled yet.
        public static let afterWaiting = Activity(rawValue: 1 << 6)
        /// Step 10: a run ends.
        public static let exit = Activity(rawValue: 1 << 7)
        public static let all: Activity = [.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit]

        public var description: String {
            let names: [(Activity, String)] = [
                (.entry, "entry"), (.beforeTimers, "beforeTimers"), (.beforeSources, "beforeSources"),
                (.beforeWaiting, "beforeWaiting"), (.afterWaiting, "afterWaiting"), (.exit, "exit"),
            ]
            let known = names.filter { contains($0.0) }.map(\.1)
            let rest = rawValue & ~Activity.all.rawValue
            return "[" + (rest == 0 ? known : known + ["0x" + String(rest, radix: 16)]).joined(separator: ", ") + "]"
        }
    }
}
