// A file descriptor that the kernel signals: the Guide's port-based source, version 1.

import Synchronization

extension RunLoop {
    /// A file descriptor that the kernel signals (CFFileDescriptor, CFRunLoopSource version 1). Does not own the descriptor.
    ///
    /// The loop never reads or writes the descriptor. An error or a hang-up makes the source ready for all that it asked for, so
    /// that the next read or write reports it. With no events asked for it stays registered, keeps its mode alive and is silent.
    /// Several sources may watch one descriptor. Close the descriptor in `onInvalidation { close($0.descriptor) }`, not before.
    ///
    /// Thread-safe. In several loops the handler never runs on two threads at once, and a one-shot fires once in all.
    public final class DescriptorSource: Source, @unchecked Sendable {
        // SAFETY: constants and atomics.

        public struct Events: OptionSet, Sendable, Hashable {
            public let rawValue: UInt8
            public init(rawValue: UInt8) { self.rawValue = rawValue }
            public static let read = Events(rawValue: 1 << 0)
            public static let write = Events(rawValue: 1 << 1)
            /// The peer closed its end.
            public static let closed = Events(rawValue: 1 << 2)

            init(_ readiness: Readiness) { self.init(rawValue: UInt8(truncatingIfNeeded: readiness.rawValue & 7)) }
        }

        /// When the source is ready again. `.level`: while the descriptor is. `.edge`: at each change. `.oneShot`: once, then after `rearm()`.
        public enum Trigger: Sendable { case level, edge, oneShot }

        public let descriptor: Int32
        public let priority: Priority
        let trigger: Trigger
        let identity: FileIdentity
        let wanted: Atomic<UInt8>
        /// False between the only shot and `rearm()`.
        let isArmed = Atomic<Bool>(true)

        private let handler: HandlerSlot<Handler>

        private struct Handler: Sendable {
            let call: @Sendable (DescriptorSource, Events) -> Void
        }

        /// Makes a source for an open descriptor.
        ///
        /// - Throws: `SourceError.badDescriptor` for a descriptor that is not open, `.notPollable` for one that the kernel cannot
        ///   watch (a regular file, a directory, `/dev/null`), `.system` when there are no descriptors left to ask with.
        public init(
            descriptor: Int32, events: Events, trigger: Trigger = .level, priority: Priority = .default,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (DescriptorSource, Events) -> Void
        ) throws(SourceError) {
            identity = try FileIdentity.ofPollable(descriptor)
            self.descriptor = descriptor
            self.trigger = trigger
            self.priority = priority
            wanted = Atomic(events.rawValue)
            self.handler = HandlerSlot(Handler(call: handler))
            super.init(kind: .descriptor, label: label, site: CreationSite(file, line))
        }

        deinit { endByLastRelease() }

        override var watch: Watch? {
            let trigger: WatchTrigger =
                switch self.trigger {
                case .level: .level
                case .edge: .edge
                case .oneShot: .oneShot
                }
            let isArmed = trigger != .oneShot || isArmed.load(ordering: .acquiring)
            return Watch(
                descriptor: descriptor,
                wanted: isArmed ? Readiness(rawValue: Int32(wanted.load(ordering: .acquiring))) : [],
                trigger: trigger, priority: priority, identity: identity)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            serveDescriptor(ready)
        }

        /// The same, for a caller who knows the class.
        @inline(__always)
        func serveDescriptor(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            let asked = Events(rawValue: wanted.load(ordering: .acquiring))
            var events = asked
            if asked.contains(.closed) {
                events = eventsWithClosed(asked, ready)
            } else if !ready.contains(.broken) {
                events = asked.intersection(Events(ready))
            }
            if events.isEmpty { return false }
            if trigger == .oneShot, !isArmed.exchange(false, ordering: .acquiringAndReleasing) { return false }
            handler.with { $0.handlers.call(self, events) }
            return true
        }

        /// libevent reports a reset as readable only, and a hang-up as readable and writable: look, without waiting.
        @inline(never)
        private func eventsWithClosed(_ asked: Events, _ ready: Readiness) -> Events {
            let seen = Readiness.now(of: descriptor, wanted: Readiness(rawValue: Int32(asked.rawValue)))
            return seen.contains(.broken) ? asked : asked.intersection(Events(trigger == .edge ? seen.union(ready) : seen))
        }

        override func releaseHandlers() { handler.clear() }

        override var typeDescription: String { "descriptor \(descriptor)" }
    }
}
