// A socket that listens or connects, as an input source.

import Synchronization

extension RunLoop {
    /// A listening or connecting socket (CFSocket's role). Owns its own descriptor; the one it hands to `accept` or `completion` is the
    /// caller's, non-blocking and close-on-exec.
    ///
    /// Thread-safe. In several loops each connection is accepted by one of them, and `completion` is called once in all.
    ///
    /// A child of `fork` shares the socket with its parent, and leaves a Unix path alone.
    public final class SocketSource: Source, @unchecked Sendable {
        // SAFETY: constants and atomics.

        private enum Role: Sendable {
            case listening(ListeningSocket)
            case connecting(ConnectAttempt)
        }

        public let priority: Priority
        private let role: Role
        private let wantsConnections = Atomic<Bool>(true)
        private let isPaused = Atomic<Bool>(false)
        /// How long the next pause is, in nanoseconds.
        private let pause = Atomic<Int64>(SocketSource.shortestPause)
        /// The end of a pause; the next try to connect.
        private let retry: CompanionTimer
        private let deadline: CompanionTimer
        /// The delivery of an outcome that the kernel does not report. It counts as a handled source, which a timer does not.
        private let outcome = CompanionSource("outcome of a connection")

        private let handlers: HandlerSlot<Handlers>

        private struct Handlers: Sendable {
            var accept: @Sendable (SocketSource, Int32, SocketAddress) -> Void = { _, _, _ in }
            var completion: @Sendable (SocketSource, Result<Int32, SourceError>) -> Void = { _, _ in }
        }

        private static let shortestPause: Int64 = 5_000_000
        private static let longestPause: Int64 = 1_000_000_000
        private static let shortestRetry: Int64 = 1_000_000
        private static let longestRetry: Int64 = 100_000_000

        /// Listens, from the call on: connections wait in the kernel's queue until the source is in a loop that runs.
        ///
        /// One connection is accepted for each call of `accept`, the next in the next pass. SO_REUSEADDR is on. When the process or the system
        /// has run out of descriptors, accepting pauses for 5 ms of the loop's time, then for twice as long, up to a second, until it
        /// works again; nothing spins and the listener stays. Connections that have failed in the queue are passed over.
        ///
        /// - Parameters:
        ///   - backlog: how many connections may wait; the system has a limit of its own (`net.core.somaxconn`).
        ///   - reusePort: SO_REUSEPORT: several sockets listen on one port, and on Linux the kernel spreads the connections over them.
        ///   - ipv6Only: whether a socket that listens on `::` refuses IPv4; else it takes both, whatever the system's setting.
        ///   - accept: called on the loop's thread with a descriptor that is yours to close.
        /// - Throws: `.badAddress` for a host that is not numeric or a path that is too long; else `.system` with the call that failed. A Unix
        ///   path at which a file stands is "in use" (`bind`, EADDRINUSE), also if nobody listens there any more: whoever knows that may
        ///   remove it. A path that was bound here is removed when the source ends, if it is the same file still.
        public init(
            listeningOn address: SocketAddress, backlog: Int32 = 1024, reusePort: Bool = false, ipv6Only: Bool = false,
            priority: Priority = .default, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            accept: @escaping @Sendable (SocketSource, _ descriptor: Int32, _ peer: SocketAddress) -> Void
        ) throws(SourceError) {
            role = .listening(try ListeningSocket(address, backlog: backlog, reusePort: reusePort, ipv6Only: ipv6Only))
            self.priority = priority
            retry = CompanionTimer("pause of a listener")
            deadline = CompanionTimer("none")
            handlers = HandlerSlot(Handlers(accept: accept))
            super.init(kind: .watched, label: label, site: CreationSite(file, line))
        }

        /// Begins to connect; the outcome is told once, when one of the source's modes runs, and the source is invalid then.
        ///
        /// A Unix socket whose queue is full is tried again until there is room or the time is over.
        ///
        /// - Parameters:
        ///   - timeout: how long it may take, from when the source is first added to a loop, in that loop's time; nil for as long as the kernel
        ///     tries. A connection that stands when the time is over and nobody has looked yet is a success.
        ///   - completion: gets a descriptor that is yours to close, or the error: `.system` with the operation `connect` and its errno,
        ///     ETIMEDOUT when the time was over. Not called when the source is invalidated before.
        /// - Throws: `.badAddress` as above, `.system` when no socket could be made. A connection that is refused at once is told to
        ///   `completion` like any other.
        public init(
            connectingTo address: SocketAddress, timeout: Swift.Duration? = nil, priority: Priority = .default,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            completion: @escaping @Sendable (SocketSource, Result<Int32, SourceError>) -> Void
        ) throws(SourceError) {
            let attempt = try ConnectAttempt(address)
            role = .connecting(attempt)
            self.priority = priority
            if case .underWay = attempt.phase {
                retry = CompanionTimer("try of a connection")
            } else {
                retry = CompanionTimer("try of a connection", startingWhenAdded: .zero)
            }
            deadline = CompanionTimer("limit of a connection", startingWhenAdded: timeout)
            pause.store(Self.shortestRetry, ordering: .relaxed)
            handlers = HandlerSlot(Handlers(completion: completion))
            super.init(kind: .watched, label: label, site: CreationSite(file, line))
        }

        deinit { endByLastRelease() }

        /// The socket's own address: with the port that the kernel chose, or the file it is bound to. Of a connecting source nil once the
        /// socket is no longer its own. Thread-safe.
        public var localAddress: SocketAddress? {
            switch role {
            case .listening(let socket): socket.localAddress
            case .connecting(let attempt): attempt.localAddress
            }
        }

        /// The socket that the source owns: for options, not to be closed or read. -1 when it has none any more. Thread-safe.
        public var descriptor: Int32 {
            switch role {
            case .listening(let socket): socket.descriptor
            case .connecting(let attempt): attempt.descriptor
            }
        }

        /// False pauses accepting; connections wait in the kernel's queue. The source stays in its modes and keeps them from being empty. Takes
        /// effect before the loop waits next; on the owning thread at once. False for a source that connects, which does not change.
        /// Thread-safe.
        public var isAccepting: Bool {
            get {
                if case .connecting = role { return false }
                return wantsConnections.load(ordering: .acquiring)
            }
            set {
                guard case .listening = role else { return }
                if wantsConnections.exchange(newValue, ordering: .acquiringAndReleasing) == newValue { return }
                if newValue { endPause() } else { watchDidChange() }
            }
        }

        // MARK: Being served

        override var watch: Watch? {
            let (descriptor, identity, wanted) =
                switch role {
                case .listening(let socket): (socket.descriptor, socket.identity, acceptsNow ? Readiness.read : [])
                case .connecting(let attempt):
                    switch attempt.phase {
                    case .underWay: (attempt.descriptor, attempt.identity, Readiness.write)
                    case .hasNoRoom, .failed: (attempt.descriptor, attempt.identity, [])
                    case .settled: (-1, attempt.identity, [])
                    }
                }
            if descriptor < 0 { return nil }
            return Watch(descriptor: descriptor, wanted: wanted, trigger: .level, priority: priority, identity: identity)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            switch role {
            case .listening(let socket): acceptsNow && acceptOne(socket)
            case .connecting(let attempt): deliver(attempt)
            }
        }

        override func didJoin(_ loop: RunLoop, _ mode: Mode) {
            retry.join(loop, mode, self, retryFired)
            deadline.join(loop, mode, self, deadlineFired)
            outcome.join(loop, mode, self)
        }

        override func didLeave(_ loop: RunLoop, _ mode: Mode) {
            retry.leave(loop, mode, self)
            deadline.leave(loop, mode, self)
            outcome.leave(loop, mode, self)
        }

        override func didInvalidate() {
            retry.stop()
            deadline.stop()
            outcome.end()
        }

        override func releaseHandlers() {
            switch role {
            case .listening(let socket): socket.end()
            case .connecting(let attempt): attempt.end()
            }
            handlers.clear()
        }

        override var typeDescription: String {
            switch role {
            case .listening(let socket): "listener on \(socket.localAddress)"
            case .connecting: "connecting socket"
            }
        }

        private var retryFired: @Sendable (RunLoop) -> Void { { [weak self] _ in self?.tryAgain() } }
        private var deadlineFired: @Sendable (RunLoop) -> Void { { [weak self] _ in self?.timeOut() } }

        // MARK: Listening

        private var acceptsNow: Bool { wantsConnections.load(ordering: .acquiring) && !isPaused.load(ordering: .acquiring) }

        private func acceptOne(_ socket: ListeningSocket) -> Bool { /* DOES CALLOUT */
            switch socket.accept() {
            case .connection(let descriptor, let peer):
                pause.store(Self.shortestPause, ordering: .relaxed)
                // The handler is there while the source is being served.
                handlers.with { $0.handlers.accept(self, descriptor, peer) }
                return true
            case .nothing: return false
            case .exhausted:
                pauseAccepting()
                return false
            case .broken(let code):
                state.withLock { state in
                    if state.failure == nil { state.failure = .system(operation: "accept", errno: code) }
                }
                invalidate()
                return false
            }
        }

        /// The listener is readable and cannot be read: watched, it would spin.
        private func pauseAccepting() {
            isPaused.store(true, ordering: .releasing)
            retry.start(.nanoseconds(lengthen(to: Self.longestPause)), for: self, retryFired)
            watchDidChange()
        }

        private func endPause() {
            retry.stop()
            isPaused.store(false, ordering: .releasing)
            watchDidChange()
        }

        /// The present pause; the next one is twice as long.
        private func lengthen(to longest: Int64) -> Int64 {
            let present = pause.load(ordering: .relaxed)
            pause.store(min(present * 2, longest), ordering: .relaxed)
            return present
        }

        // MARK: Connecting

        /// On a loop's thread, in a mode of the source.
        private func tryAgain() {
            guard case .connecting(let attempt) = role else { return endPause() }
            settle(attempt.tryAgain())
        }

        private func timeOut() {
            guard case .connecting(let attempt) = role else { return }
            settle(attempt.timeOut())
        }

        private func settle(_ phase: ConnectAttempt.Phase) {
            switch phase {
            case .underWay: watchDidChange()
            case .hasNoRoom: retry.start(.nanoseconds(lengthen(to: Self.longestRetry)), for: self, retryFired)
            case .failed: deliverSoon()
            case .settled: break
            }
        }

        /// In the modes that the source is in by then.
        private func deliverSoon() {
            guard case .connecting(let attempt) = role else { return }
            outcome.signal(for: self) { [weak self] in
                guard let self, isValid else { return }
                let loop = RunLoop.threadsLoop()
                if let mode = loop.currentMode, loop.contains(self, forMode: mode) {
                    _ = deliver(attempt)
                } else {
                    // Another thread has just taken it out of this mode.
                    deliverSoon()
                }
            }
        }

        /// Tells the outcome if there is one. On a loop's thread, in a mode of the source.
        private func deliver(_ attempt: ConnectAttempt) -> Bool { /* DOES CALLOUT */
            guard rundown.enter() else { return false }
            defer { if rundown.exit() { finish() } }
            guard let outcome = attempt.claim() else { return false }
            // Claimed, it is watched by no loop anew; those that watch it are listed until it is invalid.
            let isShared = state.withLock { $0.memberships.count > 1 }
            invalidate()
            let result = outcome.flatMap { attempt.transferDescriptor(duplicating: isShared) }
            handlers.with { $0.handlers.completion(self, result) }
            return true
        }
    }
}
