// The watchdog: reports callouts that take too long, while they do. WatchdogThread.swift looks at the loops.

internal import CPlatform
public import EventLoop

extension RunLoop {
    /// Reports callouts that take too long, while they do.
    ///
    /// A stall is a callout that lasts longer than the threshold: a handler, a block, a perform, an actor's job, a callback of a C library, a
    /// block of the main queue. Each is reported once. A sleep is no stall, and a nested run is judged by the innermost callout in
    /// progress.
    ///
    /// One thread serves all watchdogs of the process. While all watched loops sleep, it sleeps too, without a timeout. While one works, it
    /// looks at the loops twice in the smallest threshold, and once more at the moment when a callout in progress reaches its threshold.
    /// A watched loop publishes its callouts, which costs it what a recording costs.
    ///
    /// A watchdog keeps neither its loops nor itself alive: hold on to it. Releasing it ends it. Every member is thread-safe.
    /// CFRunLoop has no counterpart.
    public final class Watchdog: Sendable {
        /// A callout that takes too long, at the moment of the report.
        public struct Stall: Sendable {
            /// The loop whose thread is in the callout.
            public var loop: RunLoop
            /// The name of the loop's `RunLoopThread`; `main` for the main loop, nil for other threads.
            public var loopName: String?
            /// `pass` if the callout began before the loop was watched, and the loop cannot tell what it is.
            public var kind: Recording.Kind
            /// Of the item that was called.
            public var label: String?
            /// `file:line` where the item was made or the closure was queued; nil where there is no item.
            public var createdAt: String?
            /// So far: since the callout began, or since a nested run in it ended. For a callout that began before the loop was watched by
            /// anybody: since then.
            public var duration: Duration
            /// What the thread itself has had of it; far less than `duration` means that the thread was not running (starved, or blocked).
            ///
            /// An estimate: the time up to the watchdog's first look at the callout is counted as used, if the thread can have used it.
            /// Zero on platforms that do not report the time of another thread.
            public var processorTime: Duration
            /// Of the stuck thread, innermost frame first: the function, the offset in it, the file and the address in the file. Empty where
            /// the platform has no way to take it, if the thread blocks the signals that are used (SIGURG and SIGPROF), and if the callout
            /// has ended meanwhile.
            ///
            /// If the thread is blocked in a system call, the first line names the call. The rest is found by searching the stack, and lines
            /// that may be remainders of earlier calls have a question mark.
            public var backtrace: [String]
            /// At most eight lines of `backtrace`, for a log: first those of the program's own code, innermost first, then the innermost others.
            /// Code of this package, of libevent, of the Swift libraries and of the C library is not the program's own.
            public var summary: [String]
        }

        let watch: WatchdogWatch

        /// - Parameter threshold: how long a callout may take. A threshold below a millisecond, zero, or a negative one counts as a
        ///   millisecond.
        /// - Parameter onStall: called on the watchdog's thread, once for each callout that takes longer than `threshold`. It may call
        ///   everything, but while it runs no other stall is reported; and while 64 stalls wait for their reports, none is added to them. It
        ///   is released when the watchdog ends.
        public init(threshold: Duration = .milliseconds(250), onStall: @escaping @Sendable (Stall) -> Void) {
            WatchdogGlobals.prepare()
            watch = WatchdogWatch(threshold: max(threshold, .milliseconds(1)), onStall)
        }

        deinit { WatchdogThread.end(watch) }

        /// Watches a loop from now on. A callout that is in progress is judged from then on. Does nothing if the watchdog watches the loop
        /// already, or was invalidated, or if the loop has ended. Wakes a sleeping loop once, which then publishes its callouts.
        public func watch(_ loop: RunLoop) {
            if !loop.isOurs || !loop.isValid { return }
            WatchdogThread.add(loop, watch)
        }

        /// A report that is being made is completed; otherwise `onStall` is not called for this loop any more.
        public func stopWatching(_ loop: RunLoop) { WatchdogThread.remove(loop, watch) }

        /// Ends the watchdog: it watches no loop any more, and releases `onStall`. A report that is being made is completed. Afterwards
        /// `watch` does nothing. May be called several times.
        public func invalidate() { WatchdogThread.end(watch) }
    }
}

/// What the thread knows of a watchdog. The watchdog itself is not kept alive by the thread.
final class WatchdogWatch: @unchecked Sendable {
    // SAFETY: `threshold` is a constant; `onStall` is accessed under the lock of `WatchdogThread`.
    let threshold: Duration
    /// Nil after the end.
    var onStall: (@Sendable (RunLoop.Watchdog.Stall) -> Void)?

    init(threshold: Duration, _ onStall: @escaping @Sendable (RunLoop.Watchdog.Stall) -> Void) {
        self.threshold = threshold
        self.onStall = onStall
    }
}
