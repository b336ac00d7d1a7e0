internal import CPlatform
import Synchronization

extension RunLoop {
    /// A listening or connecting socket (CFSocket), owned by the source. Its handler owns the descriptor it gets, non-blocking and close-on-exec.
    ///
    /// Thread-safe. If the source is in several loops, one of them accepts each connection, and `completion` is called once in one of them.
    public final class SocketSource: Source, @unchecked Sendable {
        // SAFETY: constants and atomics.
        /// Decides which of the ready sources are called first.
        public let priority: Priority
        /// The source has one of the two.
        private let listener: ListeningSocket?
        private let attempt: ConnectAttempt?
        private enum Demand: UInt8, AtomicRepresentable { case accepts, waits, refusesForGood }
        private let demand = Atomic<Demand>(.accepts)
        private let isPaused = Atomic<Bool>(false)
        /// The length of the next pause, in nanoseconds.
        private let pause = Atomic<Int64>(SocketSource.pauses.lowerBound)
        /// Ends a pause, or retries to connect.
        private let retry: CompanionTimer
        private let handlers: HandlerSlot<Handlers>

        private struct Handlers: Sendable {
            var accept: @Sendable (SocketSource, Int32, SocketAddress) -> Void = { _, _, _ in }
            var completion: @Sendable (SocketSource, Result<Int32, SourceError>) -> Void = { _, _ in }
        }

        private static var pauses: ClosedRange<Int64> { 5_000_000...1_000_000_000 }
        private static var retries: ClosedRange<Int64> { 1_000_000...100_000_000 }

        /// Makes a source that listens. The socket listens at once: connections wait in the kernel's queue until the source is in a loop that runs.
        ///
        /// A pass accepts up to 16 connections that wait, with a call of `accept` for each; one if the run returns after a source. SO_REUSEADDR is
        /// on. If descriptors run out, the source backs off for 5 ms of the loop's time, then for twice as long, up to a second, until it can accept.
        /// Connections that failed in the queue are skipped.
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
            listener = try ListeningSocket(address, backlog: backlog, reusePort: reusePort, ipv6Only: ipv6Only)
            (attempt, self.priority) = (nil, priority)
            retry = CompanionTimer("pause of a listener")
            handlers = HandlerSlot(Handlers(accept: accept))
            super.init(kind: .watched, recordedKind: .socketSource, label: label, site: CreationSite(file, line), traits: .mayHaveMore)
        }

        /// Makes a source of a socket that listens already, for example one that a service manager passed to this process (`Supervisor.sockets`). The
        /// source then owns the descriptor, and makes it close-on-exec. It neither removes the file of a Unix path, which belongs to the process that
        /// made it, nor changes O_NONBLOCK, which others may share. If several processes accept from a blocking socket, a loop may wait when another
        /// process is faster: let its maker make it non-blocking (`NonBlocking=true` in a unit of systemd). Otherwise as with `listeningOn:`.
        ///
        /// - Throws: `.badDescriptor` if it is not open, `.system` if it is no listening stream socket of a known family. It stays the caller's then.
        public init(
            adoptingListener descriptor: Int32, priority: Priority = .default, label: String? = nil, file: StaticString = #fileID,
            line: UInt = #line, accept: @escaping @Sendable (SocketSource, _ descriptor: Int32, _ peer: SocketAddress) -> Void
        ) throws(SourceError) {
            listener = try ListeningSocket(adopting: descriptor)
            (attempt, self.priority) = (nil, priority)
            retry = CompanionTimer("pause of a listener")
            handlers = HandlerSlot(Handlers(accept: accept))
            super.init(kind: .watched, recordedKind: .socketSource, label: label, site: CreationSite(file, line), traits: .mayHaveMore)
        }

        /// Makes a source that connects. The attempt starts at once. The outcome is reported once, when one of the source's modes runs, and the
        /// source is then invalid. If the queue of a listening Unix socket is full, the source retries until there is room or the attempt times out.
        ///
        /// - Parameters:
        ///   - address: where to connect.
        ///   - timeout: how long the attempt may take, in each loop's time, from the first addition of the source to that loop. If nil, the
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
            let attempt = try ConnectAttempt(address, from: local, timeout: timeout, prepare)
            (listener, self.attempt, self.priority) = (nil, attempt, priority)
            retry = CompanionTimer("try of a connection", startingWhenAdded: attempt.phase == .queueIsFull ? Swift.Duration.zero : nil)
            pause.store(Self.retries.lowerBound, ordering: .relaxed)
            handlers = HandlerSlot(Handlers(completion: completion))
            super.init(kind: .watched, recordedKind: .socketSource, label: label, site: CreationSite(file, line))
        }

        deinit { endByLastRelease() }

        /// Whether the source has adopted its listener: others may have the socket, too, and accept what this source leaves in the queue.
        package var isAdopted: Bool { listener?.isAdopted ?? false }

        /// Ends listening without resetting those who have connected: refuses new ones; at an adopted socket, the loops accept no more, for good.
        package func refuseConnections() { /* DOES CALLOUT */
            guard let listener, rundown.enter() else { return }
            defer { endUse() }
            if !listener.isAdopted { return listener.refuseConnections() }
            if demand.exchange(.refusesForGood, ordering: .acquiringAndReleasing) == .accepts { watchDidChange() }
        }

        /// Accepts at most `limit` waiting connections on this thread. False if descriptors or memory ran out, and nobody else can accept the rest.
        package func acceptWaiting(limit: Int, _ accept: (Int32) -> Void) -> Bool { /* DOES CALLOUT */
            guard let listener, rundown.enter() else { return true }
            defer { endUse() }
            // A thread that ended in accept(2) would leave the use that it has begun, so the source would never end.
            let cancellation = cplatform_hold_cancellation()
            defer { cplatform_resume_cancellation(cancellation) }  // before the last use, which calls out, ends
            for _ in 0..<limit {
                switch listener.accept() {
                case .connection(let descriptor, _): accept(descriptor)
                case .exhausted: return !listener.losesItsQueue
                case .nothing, .broken: return true
                }
            }
            return true
        }

        /// The socket's own address, with its actual port, or its path. Nil after a connecting source has passed on or closed it. Thread-safe.
        public var localAddress: SocketAddress? { listener?.localAddress ?? attempt?.localAddress }
        /// The source's socket, for setting options. Do not close or read it. -1 after the source has passed on or closed its socket. Thread-safe.
        public var descriptor: Int32 { listener?.descriptor ?? attempt?.descriptor ?? -1 }

        /// Whether a listening source accepts connections. While false, connections wait in the kernel's queue, and the source stays in its modes and
        /// keeps them from being empty. A change takes effect before the next wait, on the owning thread at once. False if connecting. Thread-safe.
        public var isAccepting: Bool {
            get { listener != nil && demand.load(ordering: .acquiring) == .accepts }
            set {
                let (old, new): (Demand, Demand) = newValue ? (.waits, .accepts) : (.accepts, .waits)
                let (isChanged, _) = demand.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing)
                if isChanged && listener != nil { if newValue { endPause() } else { watchDidChange() } }
            }
        }

        // MARK: Being served
        override var watch: Watch? {
            let (phase, descriptor) = (attempt?.phase, descriptor)
            guard phase != .finished, descriptor >= 0, let identity = listener?.identity ?? attempt?.identity else { return nil }
            let isIdle = attempt == nil ? !acceptsNow : phase == .queueIsFull
            let wanted: Readiness = isIdle ? [] : attempt == nil ? .read : .write
            return Watch(identity: identity, descriptor: descriptor, wanted: wanted, trigger: .level, priority: priority)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            if let listener { acceptsNow && acceptOne(listener) } else { deliver() }
        }

        override func didJoin(_ loop: RunLoop, _ mode: Mode) {
            retry.join(loop, mode, self, retryFired)
            attempt?.deadline.join(loop, mode, self, deadlineFired)
        }

        override func didLeave(_ loop: RunLoop, _ mode: Mode) {
            retry.leave(loop, mode, self)
            attempt?.deadline.leave(loop, mode, self)
        }

        override func didInvalidate() {
            retry.stop()
            attempt?.deadline.stop()
        }

        override func releaseHandlers() {
            listener?.end()
            attempt?.end()
            handlers.clear()
        }

        override var typeDescription: String { listener.map { "listener on \($0.localAddress)" } ?? "connecting socket" }
        private var retryFired: @Sendable () -> Void { { [weak self] in self?.tryAgain() } }
        private var deadlineFired: @Sendable () -> Void { { [weak self] in self?.timeOut() } }

        // MARK: Listening
        private var acceptsNow: Bool { demand.load(ordering: .acquiring) == .accepts && !isPaused.load(ordering: .acquiring) }

        private func acceptOne(_ listener: ListeningSocket) -> Bool { /* DOES CALLOUT */
            switch listener.accept() {
            case .connection(let descriptor, let peer):
                pause.store(Self.pauses.lowerBound, ordering: .relaxed)
                handlers.with { $0.handlers.accept(self, descriptor, peer) }
                return true
            case .nothing: break
            case .exhausted:
                // The listener stays readable but cannot accept, so the loop would spin if it watched the listener.
                isPaused.store(true, ordering: .releasing)
                startRetry(Self.pauses)
                watchDidChange()
            case .broken(let code):
                noteFailure(.system(operation: "accept on \(listener.localAddress)", errno: code))
                invalidate()
            }
            return false
        }

        private func endPause() {
            retry.stop()
            isPaused.store(false, ordering: .releasing)
            watchDidChange()
        }

        /// Begins a pause, and doubles the next one.
        private func startRetry(_ lengths: ClosedRange<Int64>) {
            let present = pause.load(ordering: .relaxed)
            pause.store(min(present * 2, lengths.upperBound), ordering: .relaxed)
            retry.start(CompanionTimer.after(.nanoseconds(present)), for: self, retryFired)
        }

        // MARK: Connecting
        /// On a loop's thread, in a mode of the source.
        private func tryAgain() { if let attempt { report(attempt.tryAgain()) } else { endPause() } }
        private func timeOut() { if let attempt { report(attempt.timeOut()) } }

        private func report(_ phase: ConnectAttempt.Phase) {
            switch phase {
            case .inProgress, .failed: watchDidChange()
            case .queueIsFull: startRetry(Self.retries)
            case .finished: break
            }
        }

        /// Reports the outcome if there is one. The loop has claimed the source, so the use of its membership lasts until this returns.
        private func deliver() -> Bool { /* DOES CALLOUT */
            guard isValid, let attempt, let outcome = attempt.claim() else { return false }
            // After the claim no other loop starts to watch the socket. The loops that watch it have memberships until the source is invalid.
            let isShared = state.withLock { $0.memberships.count > 1 }
            invalidate()
            let result = outcome.flatMap { attempt.transferDescriptor(duplicating: isShared) }
            handlers.with { $0.handlers.completion(self, result) }
            return true
        }
    }
}
