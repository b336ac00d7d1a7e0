// What keeps a mode from being empty without doing anything.

import Synchronization

extension RunLoop {
    /// Keeps a mode from being empty until it is cancelled or released; the sleeping loop notices at once. Thread-safe.
    public final class KeepAlive: Sendable {
        private let ending: ForkAwareMutex<(@Sendable () -> Void)?>

        init(_ ending: @escaping @Sendable () -> Void) { self.ending = ForkAwareMutex(ending) }

        deinit { cancel() }

        /// Ends it. A second call does nothing.
        public func cancel() {
            let ending = ending.withLockUnlessInherited { ending in
                defer { ending = nil }
                return ending
            }
            ending??()
        }
    }
}
