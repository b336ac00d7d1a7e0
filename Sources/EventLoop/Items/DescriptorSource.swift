import Synchronization

extension RunLoop {
    /// A source that a file descriptor makes ready (CFFileDescriptor, CFRunLoopSource version 1). Does not own the descriptor.
    ///
    /// The loop never reads or writes the descriptor. After an error or a hang-up the source is ready for all of its `events`, so that the next read
    /// or write reports the error. If an error is all there is after some calls, the source is called once for each report of the kernel, so that a
    /// message in a socket's error queue that nobody takes does not keep the loop busy. If `events` is empty, the source stays in its modes, keeps
    /// them from being empty, and is silent. Several may watch one descriptor. Close it in `onInvalidation { close($0.descriptor) }`, not earlier.
    ///
    /// Thread-safe. In several loops, the handler never runs on two threads at once, and a one-shot source fires in one loop only.
    public final class DescriptorSource: Source, @unchecked Sendable {
        // SAFETY: constants, and the atomics of the core.

        /// What a source waits for, and what its handler is called with.
        public struct Events: OptionSet, Sendable, Hashable {
            public let rawValue: UInt8
            public init(rawValue: UInt8) { self.rawValue = rawValue }
            /// Reading does not block: there are bytes, a connection, an end or an error.
            public static let read = Events(rawValue: 1 << 0)
            /// Writing does not block: there is room, or an error.
            public static let write = Events(rawValue: 1 << 1)
            /// The peer has closed its end.
            public static let closed = Events(rawValue: 1 << 2)
            /// Something exceptional (EPOLLPRI, on Linux), such as urgent data of a TCP socket: `docs/descriptors.md` says what, and how it is read.
            public static let priority = Events(rawValue: 1 << 4)
            /// An error is pending, or a message waits in the socket's error queue (EPOLLERR, on Linux). The handler takes it, with `getsockopt` of
            /// SO_ERROR or `recvmsg(MSG_ERRQUEUE)`. A source without this event is called with all its events then, one with it with what is ready.
            public static let error = Events(rawValue: 1 << 5)
            private static let all: Events = [.read, .write, .closed, .priority, .error]
            init(_ readiness: Readiness) { self.init(rawValue: UInt8(truncatingIfNeeded: readiness.rawValue) & Self.all.rawValue) }
        }

        /// When the source becomes ready.
        public enum Trigger: Sendable {
            /// As long as the descriptor is ready.
            case level
            /// Once for each change.
            case edge
            /// Once, then again after `rearm()`.
            case oneShot
        }

        /// The watched descriptor. The source does not own it.
        public let descriptor: Int32
        /// Decides which of the ready sources are called first.
        public let priority: Priority
        let trigger: Trigger
        let identity: FileIdentity
        private let isKernelFile: Bool

        /// In the core. A closure in a value that cannot be copied is called without being retained.
        private struct Handler: ~Copyable, Sendable {
            let body: @Sendable (DescriptorSource, Events) -> Void
            @inline(__always) borrowing func call(_ source: DescriptorSource, _ events: Events) { /* DOES CALLOUT */ body(source, events) }
        }

        /// Makes a source for an open descriptor.
        ///
        /// - Throws: `SourceError.badDescriptor` if the descriptor is not open, `.notPollable` if the kernel cannot watch it (a regular
        ///   file, a directory, `/dev/null`), `.system` if there are no descriptors left for the check.
        public init(
            descriptor: Int32, events: Events, trigger: Trigger = .level, priority: Priority = .default,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (DescriptorSource, Events) -> Void
        ) throws(SourceError) {
            (identity, isKernelFile) = try FileIdentity.pollable(descriptor)
            self.descriptor = descriptor
            self.trigger = trigger
            self.priority = priority
            super.init(
                kind: .descriptor, label: label, site: CreationSite(file, line),
                traits: trigger == .oneShot ? [.isDescriptorSource, .isOneShot] : .isDescriptorSource)
            core.pointee.wanted.store(events.rawValue, ordering: .relaxed)
            assert(MemoryLayout<Handler>.size == 2 * MemoryLayout<UInt>.size, "a closure is two words")
            core.handlerMemory.initializeMemory(as: Handler.self, to: Handler(body: handler))
        }

        deinit { endByLastRelease() }

        override var watch: Watch? {
            let trigger: WatchTrigger = trigger == .oneShot ? .oneShot : trigger == .edge ? .edge : .level
            let isArmed = trigger != .oneShot || core.pointee.isArmed.load(ordering: .acquiring)
            let wanted = isArmed ? Readiness(rawValue: Int32(core.pointee.wanted.load(ordering: .acquiring))) : []
            // The first who asks takes the report, so that there is no level.
            let isTakenByAsking = isKernelFile && trigger == .level && wanted.contains(.priority)
            return Watch(
                identity: identity, descriptor: descriptor, wanted: wanted, trigger: isTakenByAsking ? .edge : trigger, priority: priority)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */ Self.serve(core, ready) }

        /// `serve`, without a look at the object. The caller knows that the core is a descriptor source's, and keeps that alive.
        @inline(__always) static func serve(_ core: SourceCorePointer, _ ready: Readiness) -> Bool { /* DOES CALLOUT */
            let asked = Events(rawValue: core.pointee.wanted.load(ordering: .acquiring))
            var events = asked
            if asked.contains(.closed) {
                events = object(of: core).use { $0.eventsWithClosed(asked, ready) }
            } else if !ready.makesReadyForAll(of: asked) {
                events = asked.intersection(Events(ready))
            }
            if events.isEmpty { return false }
            if core.pointee.traits.contains(.isOneShot), !core.pointee.isArmed.exchange(false, ordering: .acquiringAndReleasing) {
                return false
            }
            // A membership holds a use, so the handler is not released before the call has returned.
            let handler = core.handlerMemory.assumingMemoryBound(to: Handler.self)
            object(of: core).use { handler.pointee.call($0, events) }
            return true
        }

        @inline(__always) private static func object(of core: SourceCorePointer) -> Borrowed<DescriptorSource> {
            Borrowed(at: core.pointee.object, keptBy: .use)
        }

        /// libevent reports a reset as readable, and a hang-up as readable and writable. So this asks the kernel.
        @inline(never) private func eventsWithClosed(_ asked: Events, _ ready: Readiness) -> Events {
            let seen = Readiness.now(of: descriptor, wanted: Readiness(rawValue: Int32(asked.rawValue)))
            return seen.makesReadyForAll(of: asked) ? asked : asked.intersection(Events(trigger == .edge ? seen.union(ready) : seen))
        }

        override func releaseHandlers() { /* DOES CALLOUT */
            guard core.hasHandler else { return }
            // The closure may hold the last reference to an object of the user's.
            let handler = core.handlerMemory.assumingMemoryBound(to: Handler.self).move()
            core.forgetHandler()
            _ = consume handler
        }

        override func endAbandonedCalls() { /* DOES CALLOUT */
            (state.withLock { $0.rare?.attachment } as? EndOfAbandonedCalls)?.body()
        }
        override var typeDescription: String { "descriptor \(descriptor)" }
    }
}

/// The attachment of a descriptor source of another library: what it does in place of calls in which the loop's thread has ended.
package final class EndOfAbandonedCalls: Sendable {
    let body: @Sendable () -> Void
    package init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

extension Readiness {
    /// Whether an error or a hang-up makes a source ready for all its events.
    @inline(__always) fileprivate func makesReadyForAll(of asked: RunLoop.DescriptorSource.Events) -> Bool {
        contains(.broken) && !(contains(.error) && asked.contains(.error))
    }
}
