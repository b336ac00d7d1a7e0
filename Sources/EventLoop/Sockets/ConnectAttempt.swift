// Lifecycle: init opens the descriptor. `transferDescriptor` passes it to the user; otherwise `end` or deinit closes it.

internal import CPlatform
internal import EventLoopLibC

/// A socket that is connecting. Thread-safe.
final class ConnectAttempt: Sendable {
    enum Phase: Sendable, Equatable {
        /// The kernel is connecting. The socket becomes writable when there is an outcome.
        case inProgress
        /// The queue of the listening Unix socket is full. The kernel does not report when it has room, so `connect` must be retried.
        case queueIsFull
        /// The attempt has failed. The socket is writable.
        case failed(errno: Int32)
        /// A caller has claimed the outcome.
        case finished
    }

    private let state: LoopLock<(descriptor: Int32, phase: Phase)>
    private let address: RunLoop.SocketAddress
    private let native: cplatform_address
    let identity: FileIdentity
    let deadline: CompanionTimer

    /// Opens the socket and calls connect(2). `prepare` sets options before.
    init(
        _ address: RunLoop.SocketAddress, from local: RunLoop.SocketAddress?, timeout: Duration? = nil,
        _ prepare: (Int32) throws(RunLoop.SourceError) -> Void
    ) throws(RunLoop.SourceError) {
        self.address = address
        deadline = CompanionTimer("limit of a connection", startingWhenAdded: timeout)
        native = try address.native()
        let descriptor = try address.makeSocket(native)
        do throws(RunLoop.SourceError) {
            try prepare(descriptor)
            if let local {
                var native = try local.native()
                if let operation = cplatform_bind_local(descriptor, &native) {
                    let code = errno
                    throw RunLoop.SourceError.system(operation: "\(String(cString: operation)) \(local)", errno: code)
                }
            }
        } catch {
            cplatform_close(descriptor)
            throw error
        }
        state = LoopLock((descriptor: descriptor, phase: Self.connect(descriptor, native)))
        identity = FileIdentity(of: descriptor)!  // it is open; after `connect`: see `cplatform_hang_up`
    }

    deinit { end() }

    private static func connect(_ descriptor: Int32, _ native: cplatform_address) -> Phase {
        var native = native
        switch cplatform_connect(descriptor, &native) {
        case 0, EINPROGRESS: return .inProgress  // a connected socket is writable, too
        case EAGAIN: return .queueIsFull
        case let code: return fail(descriptor, code)
        }
    }

    private static func fail(_ descriptor: Int32, _ code: Int32) -> Phase {
        cplatform_hang_up(descriptor)
        return .failed(errno: code)
    }

    var phase: Phase { state.withLock { $0.phase } }
    /// -1 after it was closed or transferred.
    var descriptor: Int32 { state.withLock { $0.descriptor } }
    /// The socket's own address; nil after the socket was closed or transferred.
    var localAddress: RunLoop.SocketAddress? { state.withLock { RunLoop.SocketAddress(localOf: $0.descriptor) } }

    /// Retries if the queue was full.
    func tryAgain() -> Phase {
        state.withLock { state in
            if state.phase == .queueIsFull { state.phase = Self.connect(state.descriptor, native) }
            return state.phase
        }
    }

    /// The time limit has passed. An outcome that the kernel already knows takes precedence.
    func timeOut() -> Phase {
        state.withLock { state in
            switch state.phase {
            case .queueIsFull: state.phase = Self.fail(state.descriptor, ETIMEDOUT)
            case .inProgress:
                // Reading the error clears it in the socket, so it is stored here.
                let code = cplatform_connect_result(state.descriptor)
                if code != 0 { state.phase = Self.fail(state.descriptor, code == EINPROGRESS ? ETIMEDOUT : code) }
            case .failed, .finished: break
            }
            return state.phase
        }
    }

    /// Claims the outcome. Returns nil if there is none yet, or if another caller has claimed it.
    func claim() -> Result<Void, RunLoop.SourceError>? {
        state.withLock { state in
            let code: Int32
            switch state.phase {
            case .queueIsFull, .finished: return nil
            case .failed(let known): code = known
            case .inProgress: code = cplatform_connect_result(state.descriptor)
            }
            if code == EINPROGRESS { return nil }
            state.phase = .finished
            return code == 0 ? .success(()) : .failure(.system(operation: "connect \(address)", errno: code))
        }
    }

    /// Passes the connection to the caller. `duplicating`: as a duplicate, because other loops still watch the socket.
    func transferDescriptor(duplicating: Bool) -> Result<Int32, RunLoop.SourceError> {
        state.withLock { state in
            let descriptor = duplicating ? cplatform_duplicate(state.descriptor) : state.descriptor
            if !duplicating { state.descriptor = -1 }
            if descriptor >= 0 { return .success(descriptor) }
            return .failure(.system(operation: "fcntl(F_DUPFD_CLOEXEC) of the connection to \(address)", errno: errno))
        }
    }

    /// Closes the socket. No-op if already closed or transferred. Not a cancellation point, as a listener's end is none.
    func end() {
        guard let descriptor = state.exchange((descriptor: -1, phase: .finished))?.descriptor, descriptor >= 0 else { return }
        cplatform_close(descriptor)
    }
}
