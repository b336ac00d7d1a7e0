internal import CPlatform
import Synchronization

extension RunLoop {
    /// A listening or connecting socket (CFSocket), owned by the source. Its handler owns the descriptor it gets, non-blocking and close-on-exec.
    ///
    /// Thread-safe. If the source is in several loops, one of them accepts each connection, and `completion` is called once in one of them.
    public final class SocketSource: Source, @unchecked Sendable {
        // SAFETY: constants and atomics.

        private enum Role: Sendable {
            case listening(ListeningSocket)
            case connecting(ConnectAttempt)
        }

        /// Decides which of the ready sources are called first.
        public let priority: Priority
        private let role: Role
        private let wantsConnections = Atomic<Bool>(true)
        private let isPaused = Atomic<Bool>(false)
        /// The length of the next pause, in nanoseconds.
        private let pause = Atomic<Int64>(SocketSource.shortestPause)
        /// Ends a pause, or retries to connect.
        private let retry: CompanionTimer
        /// The limit of a connection; nil for a listener.
        private let deadline: CompanionTimer?
        private let handlers: HandlerSlot<Handlers>

        private struct Handlers: Sendable {
            var accept: @Sendable (SocketSource, Int32, SocketAddress) -> Void = { _, _, _ in }
            var completion: @Sendable (SocketSource, Result<Int32, SourceError>) -> Void = { _, _ in }
        }

        private static let shortestPause: Int64 = 5_000_000
        private static let longestPause: Int64 = 1_000_000_000
        private static let shortestRetry: Int64 = 1_000_000
        private static let longestRetry: Int64 = 100_000_000

        /// Makes a source that listens. The socket listens at once: connections wait in the kernel's queue until the source is in a loop that runs.
        ///
        /// Each pass accepts one connection and calls `accept` with it. SO_REUSEADDR is on. If descriptors run out, the source backs off for 5 ms of
        /// the loop's time, then for twice as long, up to a second, until it can accept. Connections that failed in the queue are skipped.
        ///
        /// - Parameters:
        ///   - address: where to listen. On port 0, the kernel chooses one, which `localAddress` then has.
        ///   - backlog: how many connections may wait. The system has a limit of its own (`net.core.somaxconn`).
        ///   - reusePort: SO_REUSEPORT: several sockets may listen on one port. On Linux the kernel distributes the connections among them.
        ///   - ipv6Only: whether a socket that listens on `::` refuses IPv4. If false, it accepts both, regardless of the system's setting.
        ///   - priority: decides which of the ready sources are called first.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - accept: called on the loop's thread with the descriptor, which the handler must close, and the peer's address.
        /// - Throws: `.badAddress` for a host that is not numeric or a path that is too long; otherwise `.system` with the operation that failed. A
        ///   relative Unix path is made absolute. If its file is a socket on which nobody listens any more (connecting is refused), it is replaced;
        ///   any other file is in use (`bind`, EADDRINUSE). At its end the source removes the file that it created, unless another has replaced it.
        public init(
            listeningOn address: SocketAddress, backlog: Int32 = 1024, reusePort: Bool = false, ipv6Only: Bool = false,
            priority: Priority = .default, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            accept: @escaping @Sendable (SocketSource, _ descriptor: Int32, _ peer: SocketAddress) -> Void
        ) throws(SourceError) {
            role = .listening(try ListeningSocket(address, backlog: backlog, reusePort: reusePort, ipv6Only: ipv6Only))
            self.priority = priority
            retry = CompanionTimer("pause of a listener")
            deadline = nil
            handlers = HandlerSlot(Handlers(accept: accept))
            super.init(kind: .watched, recordedKind: .socketSource, label: label, site: CreationSite(file, line))
        }

        /// Makes a source of a socket that listens already, for example one that a service manager passed to this process (`Supervisor.sockets`). The
        /// source owns the descriptor from then on, makes it close-on-exec, and closes it at the end. It does not remove the file of a Unix path,
        /// which belongs to the process that made it, and does not change O_NONBLOCK of the socket, which others may share. If several processes
        /// accept from a blocking socket, a loop may wait when another process is faster: let its maker make it non-blocking (`NonBlocking=true` in a
        /// unit of systemd). Otherwise as `init(listeningOn:backlog:reusePort:ipv6Only:priority:label:file:line:accept:)`.
        ///
        /// - Throws: `.badDescriptor` if the descriptor is not open, `.system` if it is no stream socket that listens, or if its family is
        ///   unknown. The descriptor then remains the caller's.
        public init(
            adoptingListener descriptor: Int32, priority: Priority = .default, label: String? = nil, file: StaticString = #fileID,
            line: UInt = #line, accept: @escaping @Sendable (SocketSource, _ descriptor: Int32, _ peer: SocketAddress) -> Void
        ) throws(SourceError) {
            role = .listening(try ListeningSocket(adopting: descriptor))
            self.priority = priority
            retry = CompanionTimer("pause of a listener")
            deadline = nil
            handlers = HandlerSlot(Handlers(accept: accept))
            super.init(kind: .watched, recordedKind: .socketSource, label: label, site: CreationSite(file, line))
        }

        /// Makes a source that connects. The attempt starts at once. The outcome is reported once, when one of the source's modes runs, and the
        /// source is then invalid. If the queue of a listening Unix socket is full, the source retries until there is room or the attempt times out.
        ///
        /// - Parameters:
        ///   - address: where to connect.
        ///   - timeout: how long the attempt may take, in the loop's time, from the first addition of the source to a loop. If nil, the
        ///     kernel decides. If the connection is established when the limit passes, the attempt succeeds.
        ///   - priority: decides which of the ready sources are called first.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - completion: called with a descriptor, which the handler must close, or with the error: `.system` with the operation
        ///     `connect` and its errno; ETIMEDOUT if the attempt timed out. Not called if the source is invalidated earlier.
        /// - Throws: `.badAddress` for a host that is not numeric or a path that is too long, `.system` if no socket could be made. A
        ///   connection that is refused at once is reported to `completion` like any other.
        public convenience init(
            connectingTo address: SocketAddress, timeout: Swift.Duration? = nil, priority: Priority = .default,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            completion: @escaping @Sendable (SocketSource, Result<Int32, SourceError>) -> Void
        ) throws(SourceError) {
            try self.init(
                connectingTo: address, from: nil, timeout: timeout, priority: priority, label: label, file: file, line: line,
                prepare: { _ in }, completion: completion)
        }

        /// The same for streams: from a local address, and with options that `prepare` sets before the first packet.
        package init(
            connectingTo address: SocketAddress, from local: SocketAddress?, timeout: Swift.Duration?, priority: Priority = .default,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line, prepare: (Int32) throws(SourceError) -> Void,
            completion: @escaping @Sendable (SocketSource, Result<Int32, SourceError>) -> Void
        ) throws(SourceError) {
            let attempt = try ConnectAttempt(address, from: local, prepare)
            role = .connecting(attempt)
            self.priority = priority
            retry = CompanionTimer("try of a connection", startingWhenAdded: attempt.phase == .queueIsFull ? Swift.Duration.zero : nil)
            deadline = CompanionTimer("limit of a connection", startingWhenAdded: timeout)
            pause.store(Self.shortestRetry, ordering: .relaxed)
            handlers = HandlerSlot(Handlers(completion: completion))
            super.init(kind: .watched, recordedKind: .socketSource, label: label, site: CreationSite(file, line))
        }

        deinit { endByLastRelease() }

        /// Ends listening without resetting those who have connected: refuses new connections, if the socket is the source's own.
        package func refuseConnections() {
            guard case .listening(let socket) = role, rundown.enter() else { return }
            defer { if rundown.exit() { finish() } }
            socket.refuseConnections()
        }

        /// Accepts at most `limit` waiting connections on this thread. False if descriptors or memory ran out, and nobody else can accept the rest.
        package func acceptWaiting(limit: Int, _ accept: (Int32) -> Void) -> Bool { /* DOES CALLOUT */
            guard case .listening(let socket) = role, rundown.enter() else { return true }
            // A thread that ended in accept(2) would leave the use that it has begun, so the source would never end.
            let cancellation = cplatform_hold_cancellation()
            defer {
                // First: the last use calls out.
                cplatform_resume_cancellation(cancellation)
                if rundown.exit() { finish() }
            }
            for _ in 0..<limit {
                switch socket.accept() {
                case .connection(let descriptor, _): accept(descriptor)
                case .exhausted: return !socket.losesItsQueue
                case .nothing, .broken: return true
                }
            }
            return true
        }

        /// The socket's own address, with its actual port, or its path. Nil after a connecting source has passed on or closed it. Thread-safe.
        public var localAddress: SocketAddress? {
            switch role {
            case .listening(let socket): socket.localAddress
            case .connecting(let attempt): attempt.localAddress
            }
        }

        /// The source's socket, for setting options. Do not close or read it. -1 after the source has passed on or closed its socket. Thread-safe.
        public var descriptor: Int32 {
            switch role {
            case .listening(let socket): socket.descriptor
            case .connecting(let attempt): attempt.descriptor
            }
        }

        /// Whether a listening source accepts connections. While false, connections wait in the kernel's queue, and the source stays in its modes and
        /// keeps them from being empty. A change takes effect before the next wait, on the owning thread at once. False if connecting. Thread-safe.
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
                    case .inProgress, .failed: (attempt.descriptor, attempt.identity, Readiness.write)
                    case .queueIsFull: (attempt.descriptor, attempt.identity, [])
                    case .finished: (-1, attempt.identity, [])
                    }
                }
            if descriptor < 0 { return nil }
            return Watch(identity: identity, descriptor: descriptor, wanted: wanted, trigger: .level, priority: priority)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            switch role {
            case .listening(let socket): acceptsNow && acceptOne(socket)
            case .connecting(let attempt): deliver(attempt)
            }
        }

        override func didJoin(_ loop: RunLoop, _ mode: Mode) {
            retry.join(loop, mode, self, retryFired)
            deadline?.join(loop, mode, self, deadlineFired)
        }

        override func didLeave(_ loop: RunLoop, _ mode: Mode) {
            retry.leave(loop, mode, self)
            deadline?.leave(loop, mode, self)
        }

        override func didInvalidate() {
            retry.stop()
            deadline?.stop()
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

        private var retryFired: @Sendable () -> Void { { [weak self] in self?.tryAgain() } }
        private var deadlineFired: @Sendable () -> Void { { [weak self] in self?.timeOut() } }

        // MARK: Listening

        private var acceptsNow: Bool { wantsConnections.load(ordering: .acquiring) && !isPaused.load(ordering: .acquiring) }

        private func acceptOne(_ socket: ListeningSocket) -> Bool { /* DOES CALLOUT */
            switch socket.accept() {
            case .connection(let descriptor, let peer):
                pause.store(Self.shortestPause, ordering: .relaxed)
                // A source that is being served has its handlers.
                handlers.with { $0.handlers.accept(self, descriptor, peer) }
                return true
            case .nothing: return false
            case .exhausted:
                pauseAccepting()
                return false
            case .broken(let code):
                noteFailure(.system(operation: "accept on \(socket.localAddress)", errno: code))
                invalidate()
                return false
            }
        }

        /// The listener stays readable but cannot accept, so the loop would spin if it watched the listener.
        private func pauseAccepting() {
            isPaused.store(true, ordering: .releasing)
            retry.start(nextPause(upTo: Self.longestPause), for: self, retryFired)
            watchDidChange()
        }

        private func endPause() {
            retry.stop()
            isPaused.store(false, ordering: .releasing)
            watchDidChange()
        }

        /// The end of a pause that begins now. Doubles the length of the next one.
        private func nextPause(upTo longest: Int64) -> CompanionTimer.Date {
            let present = pause.load(ordering: .relaxed)
            pause.store(min(present * 2, longest), ordering: .relaxed)
            return CompanionTimer.after(.nanoseconds(present))
        }

        // MARK: Connecting

        /// On a loop's thread, in a mode of the source.
        private func tryAgain() {
            guard case .connecting(let attempt) = role else { return endPause() }
            report(attempt.tryAgain())
        }

        private func timeOut() {
            if case .connecting(let attempt) = role { report(attempt.timeOut()) }
        }

        private func report(_ phase: ConnectAttempt.Phase) {
            switch phase {
            case .inProgress, .failed: watchDidChange()
            case .queueIsFull: retry.start(nextPause(upTo: Self.longestRetry), for: self, retryFired)
            case .finished: break
            }
        }

        /// Reports the outcome if there is one. The loop has claimed the source, so the use of its membership lasts until this returns.
        private func deliver(_ attempt: ConnectAttempt) -> Bool { /* DOES CALLOUT */
            guard isValid, let outcome = attempt.claim() else { return false }
            // After the claim no other loop starts to watch the socket. The loops that watch it have memberships until the source is invalid.
            let isShared = state.withLock { $0.memberships.count > 1 }
            invalidate()
            let result = outcome.flatMap { attempt.transferDescriptor(duplicating: isShared) }
            handlers.with { $0.handlers.completion(self, result) }
            return true
        }
    }
}
