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
    /// Whether accept(2) says that nobody waits, and not EINVAL, after another holder has shut the socket down, which then stays readable.
    private let hidesShutdown: Bool
    /// Held by a thread that accepts from a blocking socket, from its look at the queue on.
    private let turn: LoopLock<Void>

    init(_ address: RunLoop.SocketAddress, backlog: Int32, reusePort: Bool, ipv6Only: Bool) throws(RunLoop.SourceError) {
        let path = BoundFile.absolutePath(of: address)
        var native = try address.nativeFromRoot()
        (isAdopted, isBlocking, hidesShutdown) = (false, false, false)
        let descriptor = try address.makeSocket(native)
        if let operation = cplatform_listen(descriptor, &native, backlog, reusePort, ipv6Only) {
            let code = errno
            let isBound = String(cString: operation) == "listen"
            Self.release(descriptor, isBound ? BoundFile(path) : nil)
            throw .system(operation: "\(String(cString: operation)) \(address)", errno: code)
        }
        file = BoundFile(path)
        handle = Atomic(descriptor)
        turn = LoopLock(())
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
        if case .unix = address { hidesShutdown = !isBlocking } else { hidesShutdown = false }
        (localAddress, self.identity) = (address, identity)
        file = nil  // that of a Unix path belongs to the process that created it
        handle = Atomic(descriptor)
        turn = LoopLock(())
    }

    deinit { end() }
    /// -1 after it was closed.
    var descriptor: Int32 { handle.load(ordering: .acquiring) }

    /// Accepts the next connection, if one waits. Skips connections that failed while they waited.
    func accept() -> AcceptResult {
        var peer = cplatform_address()
        var isShutDown = false
        // Bounded, so that a flood of failed connections does not block the loop. The rest waits for the next pass.
        for _ in 0..<16 {
            let (descriptor, code) = isBlocking ? acceptIfOneWaits(&peer) : acceptNow(&peer)
            if descriptor >= 0 { return .connection(descriptor, RunLoop.SocketAddress(peer) ?? .unix(path: "")) }
            switch Int(cplatform_accept_failure(code)) {
            case CPLATFORM_ACCEPT_LOST: continue
            case CPLATFORM_ACCEPT_NOTHING:
                if isShutDown { return .broken(errno: EINVAL) }
                isShutDown = hidesShutdown && Readiness.now(of: self.descriptor, wanted: .closed).contains(.closed)
                if !isShutDown { return .nothing }
                // Once more, for a client that has connected since accept(2) and before the shutdown.
            case CPLATFORM_ACCEPT_EXHAUSTED: return .exhausted
            default: return .broken(errno: code)
            }
        }
        return .nothing
    }

    /// The descriptor, or -1 and the errno.
    @inline(__always) private func acceptNow(_ peer: inout cplatform_address) -> (descriptor: Int32, code: Int32) {
        let descriptor = cplatform_accept(self.descriptor, &peer)
        return (descriptor, descriptor < 0 ? errno : 0)
    }

    /// The same for a blocking socket, on which no call accepts without waiting. Looks and accepts in one step, so that no other thread of this
    /// object accepts in between. If another process does, this thread waits for the next connection.
    private func acceptIfOneWaits(_ peer: inout cplatform_address) -> (descriptor: Int32, code: Int32) {
        // First without the lock: a thread that waits for the next connection holds it, and no other thread is to wait for that.
        if !cplatform_is_readable(descriptor) { return (-1, EAGAIN) }
        // A thread that ended in accept(2) would keep the lock.
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        return turn.withLock { _ in cplatform_is_readable(descriptor) ? acceptNow(&peer) : (descriptor: -1, code: EAGAIN) }
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
