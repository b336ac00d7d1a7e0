// A socket on its way to a connection.
//
// Lifecycle: the descriptor is made by init. A connection is given away by `transferDescriptor`; whatever else there is, `end` or deinit closes.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Thread-safe.
final class ConnectAttempt: Sendable {
    enum Phase: Sendable {
        /// The kernel says when there is an outcome: the socket becomes writable.
        case underWay
        /// The queue of the Unix socket that listens is full, of which the kernel says nothing: to be tried again.
        case hasNoRoom
        /// The outcome is known, and not from the kernel.
        case failed(RunLoop.SourceError)
        /// Somebody has claimed the outcome.
        case settled
    }

    private struct State: Sendable {
        var descriptor: Int32
        var phase: Phase
    }
    private let state: ForkAwareMutex<State>
    private let native: cplatform_address
    let identity: FileIdentity

    /// Begins.
    init(_ address: RunLoop.SocketAddress) throws(RunLoop.SourceError) {
        native = try address.native()
        var native = native
        let descriptor = cplatform_make_socket(&native)
        if descriptor < 0 { throw .system(operation: "socket", errno: errno) }
        // It is open.
        identity = FileIdentity(of: descriptor)!
        state = ForkAwareMutex(State(descriptor: descriptor, phase: Self.phase(after: cplatform_connect(descriptor, &native))))
    }

    deinit { end() }

    private static func phase(after code: Int32) -> Phase {
        switch code {
        case 0, EINPROGRESS: .underWay  // connected is writable, too
        case EAGAIN: .hasNoRoom
        default: .failed(failure(code))
        }
    }

    private static func failure(_ code: Int32) -> RunLoop.SourceError { .system(operation: "connect", errno: code) }

    var phase: Phase { state.withLock { $0.phase } }

    /// -1 once it was closed or given away.
    var descriptor: Int32 { state.withLock { $0.descriptor } }

    /// Of the socket, while it is the attempt's.
    var localAddress: RunLoop.SocketAddress? {
        state.withLock { state in
            var local = cplatform_address()
            guard state.descriptor >= 0, cplatform_local_address(state.descriptor, &local) == 0 else { return nil }
            return RunLoop.SocketAddress(local)
        }
    }

    /// Tries again where there was no room.
    func tryAgain() -> Phase {
        state.withLock { state in
            if case .hasNoRoom = state.phase {
                var native = native
                state.phase = Self.phase(after: cplatform_connect(state.descriptor, &native))
            }
            return state.phase
        }
    }

    /// The time is over. What the kernel knows by now stands.
    func timeOut() -> Phase {
        state.withLock { state in
            switch state.phase {
            case .hasNoRoom: state.phase = .failed(Self.failure(ETIMEDOUT))
            case .underWay:
                // Looking takes the error from the socket, so it is kept here.
                let code = cplatform_connect_result(state.descriptor)
                if code != 0 { state.phase = .failed(Self.failure(code == EINPROGRESS ? ETIMEDOUT : code)) }
            case .failed, .settled: break
            }
            return state.phase
        }
    }

    /// Success or an error, for the one caller who gets it; nil when there is no outcome, or somebody has it.
    func claim() -> Result<Void, RunLoop.SourceError>? {
        state.withLock { state in
            switch state.phase {
            case .hasNoRoom, .settled: return nil
            case .failed(let error):
                state.phase = .settled
                return .failure(error)
            case .underWay:
                let code = cplatform_connect_result(state.descriptor)
                if code == EINPROGRESS { return nil }
                state.phase = .settled
                return code == 0 ? .success(()) : .failure(Self.failure(code))
            }
        }
    }

    /// Gives the connection away; `duplicating` when other loops' kernels still have to let go of the socket.
    func transferDescriptor(duplicating: Bool) -> Result<Int32, RunLoop.SourceError> {
        state.withLock { state in
            if duplicating {
                let copy = cplatform_duplicate(state.descriptor)
                return copy < 0 ? .failure(.system(operation: "fcntl(F_DUPFD_CLOEXEC)", errno: errno)) : .success(copy)
            }
            defer { state.descriptor = -1 }
            return .success(state.descriptor)
        }
    }

    /// A second call does nothing.
    func end() {
        let descriptor = state.withLockUnlessInherited { state in
            defer { state.descriptor = -1 }
            return state.descriptor
        }
        if let descriptor, descriptor >= 0 { close(descriptor) }
    }
}
