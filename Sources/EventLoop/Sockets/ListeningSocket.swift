// A socket that listens.
//
// Lifecycle: the descriptor is made by init and closed by `end`, or by deinit; the file of a Unix path, likewise.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Thread-safe.
final class ListeningSocket: Sendable {
    enum AcceptResult {
        case connection(Int32, RunLoop.SocketAddress)
        case nothing
        /// There are no descriptors or no memory left; the connection waits.
        case exhausted
        case broken(errno: Int32)
    }

    private let handle: Atomic<Int32>
    let identity: FileIdentity
    let localAddress: RunLoop.SocketAddress
    /// The file that `bind` has made, and the process that made it.
    private let file: (device: UInt64, inode: UInt64)?
    private let native: cplatform_address
    private let forks: Int32

    init(_ address: RunLoop.SocketAddress, backlog: Int32, reusePort: Bool, ipv6Only: Bool) throws(RunLoop.SourceError) {
        native = try address.native()
        forks = ForkEpoch.current
        var native = native
        let descriptor = cplatform_make_socket(&native)
        if descriptor < 0 { throw .system(operation: "socket", errno: errno) }
        if let operation = cplatform_listen(descriptor, &native, backlog, reusePort, ipv6Only) {
            let code = errno
            let isBound = String(cString: operation) == "listen"
            Self.release(descriptor, native, isBound ? Self.file(of: native) : nil)
            throw .system(operation: String(cString: operation), errno: code)
        }
        file = Self.file(of: native)
        handle = Atomic(descriptor)
        var local = cplatform_address()
        let code = cplatform_local_address(descriptor, &local)
        localAddress = code == 0 ? RunLoop.SocketAddress(local) ?? address : address
        // It is open.
        identity = FileIdentity(of: descriptor)!
    }

    deinit { end() }

    /// -1 once it is closed.
    var descriptor: Int32 { handle.load(ordering: .acquiring) }

    /// Takes the next connection, if one waits. Connections that have failed while they waited are passed over.
    func accept() -> AcceptResult {
        var peer = cplatform_address()
        // A bound, so that a storm of such connections does not hold up the loop; what is left is there in the next pass.
        for _ in 0..<16 {
            let descriptor = cplatform_accept(self.descriptor, &peer)
            if descriptor >= 0 { return .connection(descriptor, RunLoop.SocketAddress(peer) ?? .unix(path: "")) }
            let code = errno
            switch Int(cplatform_accept_failure(code)) {
            case CPLATFORM_ACCEPT_LOST: continue
            case CPLATFORM_ACCEPT_NOTHING: return .nothing
            case CPLATFORM_ACCEPT_EXHAUSTED: return .exhausted
            default: return .broken(errno: code)
            }
        }
        return .nothing
    }

    /// Closes the socket and removes its file, if that is still its own. A second call does nothing.
    func end() {
        let descriptor = handle.exchange(-1, ordering: .acquiringAndReleasing)
        // What a child of fork closes goes on in the parent.
        if descriptor >= 0 { Self.release(descriptor, native, forks == ForkEpoch.current ? file : nil) }
    }

    private static func file(of native: cplatform_address) -> (device: UInt64, inode: UInt64)? {
        var (native, device, inode) = (native, UInt64(0), UInt64(0))
        return cplatform_bound_file(&native, &device, &inode) == 0 ? (device, inode) : nil
    }

    /// The file goes first: while the socket is open no other file can have its inode.
    private static func release(_ descriptor: Int32, _ native: cplatform_address, _ file: (device: UInt64, inode: UInt64)?) {
        var native = native
        if let file { cplatform_unlink_bound_file(&native, file.device, file.inode) }
        close(descriptor)
    }
}
