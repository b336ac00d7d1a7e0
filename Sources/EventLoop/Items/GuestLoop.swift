import Synchronization

extension RunLoop {
    /// Somebody else's loop, driven by ours: watched by its descriptor, in modes, like any source.
    ///
    /// GLib's contexts, libuv's loops, and connections that read ahead (Wayland, X) say before a wait what they wait for: a descriptor, and
    /// perhaps an instant at which they want to be called although it is quiet. The loop asks them before it polls the kernel, and calls them
    /// when one or the other comes. A guest is silent while the loop runs other modes, and costs nothing while the loop sleeps.
    ///
    /// Does not own the descriptor. Close it in `onInvalidation`, not earlier. Thread-safe. If the source is in several loops, its closures never run
    /// on two threads at once; most guests belong to one thread, so add it to the loop of that thread only.
    public final class GuestLoop: Source, @unchecked Sendable {
        // SAFETY: constants and an atomic.

        /// The guest's descriptor, which is readable when the guest has work.
        public let descriptor: Int32
        /// Decides which of the ready sources are called first.
        public let priority: Priority
        private let identity: FileIdentity
        /// When the guest wants to be called, in nanoseconds of the time of the loop that asked it last; `Int64.max` for never.
        let nextCall = Atomic<Int64>(.max)
        private let handler: HandlerSlot<Handler>

        private struct Handler: Sendable {
            let prepare: @Sendable () -> Instant?
            let dispatch: @Sendable () -> Void
        }

        /// Makes a source for a guest.
        ///
        /// - Parameters:
        ///   - descriptor: readable when the guest has work. The source does not own it.
        ///   - priority: decides which of the ready sources are called first.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - prepare: called on the loop's thread before each poll of the kernel in one of the source's modes, whether it sleeps or not. Returns
        ///     when the guest wants to be called though its descriptor is quiet, in the loop's time; nil for never.
        ///   - dispatch: called when the descriptor is readable or that instant has come. Must not block. Counts as a handled source.
        /// - Throws: `SourceError.badDescriptor` if it is not open, `.notPollable` if the kernel cannot watch it, `.system` if no descriptor is left.
        public init(
            descriptor: Int32, priority: Priority = .default, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            prepare: @escaping @Sendable () -> Instant? = { nil }, dispatch: @escaping @Sendable () -> Void
        ) throws(SourceError) {
            identity = try FileIdentity.pollable(descriptor).identity
            self.descriptor = descriptor
            self.priority = priority
            handler = HandlerSlot(Handler(prepare: prepare, dispatch: dispatch))
            super.init(kind: .guest, label: label, site: CreationSite(file, line))
        }

        deinit { endByLastRelease() }

        override var watch: Watch? { Watch(identity: identity, descriptor: descriptor, priority: priority) }
        /// When the guest wants to be called, in nanoseconds; `Int64.max` for never. The caller has claimed the source.
        func callPrepare() -> Int64 { /* DOES CALLOUT */ (handler.with { $0.handlers.prepare() } ?? nil)?.nanoseconds ?? .max }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            // Before the call: the loop asks again before it polls again.
            nextCall.store(.max, ordering: .relaxed)
            handler.with { $0.handlers.dispatch() }
            return true
        }

        override func releaseHandlers() { handler.clear() }
        override var typeDescription: String { "guest loop, descriptor \(descriptor)" }
    }
}
