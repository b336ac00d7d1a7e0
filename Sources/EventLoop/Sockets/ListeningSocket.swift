// Lifecycle: init opens the descriptor and creates the file of a Unix path, or adopts a descriptor; `end` or deinit closes and removes them.

internal import CPlatform
internal import EventLoopLibC
import Synchronization

/// Thread-safe.
final class ListeningSocket: Sendable {
    enum AcceptResult {
        case connection(Int32, RunLoop.SocketAddress)
        case nothing
        /// There are no descriptors or no memory left. The connection stays in the queue.
        case exhausted
        /// The listener cannot be used any more.
        case broken(errno: Int32)
    }

    private let handle: Atomic<Int32>
    let identity: FileIdentity
    let localAddress: RunLoop.SocketAddress
    /// The file that `bind` created.
    private let file: BoundFile?
    /// Others may have the socket, too.
    let isAdopted: Bool
    /// Accepting waits, because the open file belongs to others too, and must stay as it is.
    private let isBlocking: Bool
    /// Held by a thread that accepts from a blocking socket, from its look at the queue on.
    private let turn = LoopLock(())

    init(_ address: RunLoop.SocketAddress, backlog: Int32, reusePort: Bool, ipv6Only: Bool) throws(RunLoop.SourceError) {
        let path = BoundFile.absolutePath(of: address)
        var native = try address.nativeFromRoot()
        (isAdopted, isBlocking) = (false, false)
        let descriptor = try address.makeSocket(native)
        if let operation = cplatform_listen(descriptor, &native, backlog, reusePort, ipv6Only) {
            let code = errno
            let isBound = String(cString: operation) == "listen"
            Self.release(descriptor, isBound ? BoundFile(path) : nil)
            throw .system(operation: "\(String(cString: operation)) \(address)", errno: code)
        }
        file = BoundFile(path)
        handle = Atomic(descriptor)
        localAddress = RunLoop.SocketAddress(localOf: descriptor) ?? address
        identity = FileIdentity(of: descriptor)!  // it is open
    }

    /// Takes over a socket that listens already. If it throws, the descriptor remains the caller's.
    init(adopting descriptor: Int32) throws(RunLoop.SourceError) {
        guard let identity = FileIdentity(of: descriptor) else { throw .badDescriptor(descriptor) }
        if Int(cplatform_descriptor_kind(descriptor)) != CPLATFORM_LISTENER {
            throw .system(operation: "adopting descriptor \(descriptor), which is no stream socket that listens", errno: EINVAL)
        }
        guard let address = RunLoop.SocketAddress(localOf: descriptor) else {
            throw .system(operation: "adopting descriptor \(descriptor), whose address is of an unknown kind", errno: EAFNOSUPPORT)
        }
        let code = cplatform_set_close_on_exec(descriptor)
        if code != 0 { throw .system(operation: "adopting descriptor \(descriptor)", errno: code) }
        (isAdopted, isBlocking) = (true, cplatform_is_blocking(descriptor))
        (localAddress, self.identity) = (address, identity)
        file = nil  // that of a Unix path belongs to the process that created it
        handle = Atomic(descriptor)
    }

    deinit { end() }
    /// -1 after it was closed.
    var descriptor: Int32 { handle.load(ordering: .acquiring) }

    /// Accepts the next connection, if one waits. Skips connections that failed while they waited.
    func accept() -> AcceptResult {
        var peer = cplatform_address()
        // Bounded, so that a flood of failed connections does not block the loop. The rest waits for the next pass.
        for _ in 0..<16 {
            let result = isBlocking ? acceptInTurn(&peer) : cplatform_accept(descriptor, &peer, isAdopted)
            if result >= 0 { return .connection(result, RunLoop.SocketAddress(peer) ?? .unix(path: "")) }
            switch Int(cplatform_accept_failure(-result)) {
            case CPLATFORM_ACCEPT_LOST: continue
            case CPLATFORM_ACCEPT_NOTHING: return .nothing
            case CPLATFORM_ACCEPT_EXHAUSTED: return .exhausted
            default: return .broken(errno: -result)
            }
        }
        return .nothing
    }

    /// No call accepts from a blocking socket without waiting. If another process accepts between the look and the call, this thread waits.
    private func acceptInTurn(_ peer: inout cplatform_address) -> Int32 {
        if !cplatform_is_readable(descriptor) { return -EAGAIN }  // without the lock: no other thread is to wait for one that waits so
        let cancellation = cplatform_hold_cancellation()  // a thread that ended in accept(2) would keep the lock
        defer { cplatform_resume_cancellation(cancellation) }
        return turn.withLock { _ in cplatform_is_readable(descriptor) ? cplatform_accept(descriptor, &peer, false) : -EAGAIN }
    }

    /// Whether connections wait that nobody could accept after this object. The kernel says that descriptors have run out even if none waits.
    var losesItsQueue: Bool { !isAdopted && cplatform_is_readable(descriptor) }

    /// Closes the socket, and removes its file unless another file has replaced it. No-op if already closed.
    func end() {
        let descriptor = handle.exchange(-1, ordering: .acquiringAndReleasing)
        if descriptor >= 0 { Self.release(descriptor, file) }
    }

    /// From now on accepts only those in the queue, as far as the system can do that. No-op for an adopted socket, which a successor may have.
    func refuseConnections() {
        if isAdopted { return }
        // Before the last look at the queue: connecting to a path that does not exist fails at once.
        file?.remove()
        cplatform_refuse_connections(descriptor)
    }

    /// Removes the file first: while the socket is open, no other file can have its inode. Not a cancellation point, unlike close(2): a thread that
    /// ended there would leave the socket open for ever, and whatever else it is about to end.
    private static func release(_ descriptor: Int32, _ file: BoundFile?) {
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        file?.remove()
        close(descriptor)
    }
}
