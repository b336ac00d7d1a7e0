// The socket under a stream: its options, its peer, its descriptor.

internal import CStreams
import EventLoop
internal import EventLoopLibC

extension ByteStream {

    /// The process at the other end of a Unix socket, as the kernel knew it when the connection was made.
    public struct PeerCredentials: Sendable, Hashable {
        /// It may have ended since, and another process may have its number. Zero if it is in a namespace that this process does not see.
        public var processID: Int32
        /// The effective user.
        public var userID: UInt32
        /// The effective group.
        public var groupID: UInt32
    }

    /// Who is at the other end of a Unix socket; nil for other sockets and files, and after the end. Any thread.
    public var peerCredentials: PeerCredentials? {
        let found = withDescriptor { descriptor -> PeerCredentials? in
            var peer = PeerCredentials(processID: 0, userID: 0, groupID: 0)
            let code = cstreams_peer_credentials(descriptor, &peer.processID, &peer.userID, &peer.groupID)
            return code == 0 ? peer : nil
        }
        return found ?? nil
    }

    /// Calls `body` with the descriptor, for calls that this package does not have. Nil after the end, and for a stream in memory. Of two
    /// descriptors it is the one that is read.
    ///
    /// The descriptor is the stream's: do not close, read or write it, and do not keep it. It stays open while `body` runs, also if the stream ends
    /// meanwhile. Any thread; calls `body` on the caller's, which `pthread_cancel` does not end before `body` has returned.
    public func withDescriptor<Result, Failure>(_ body: (Int32) throws(Failure) -> Result) throws(Failure) -> Result? { /* DOES CALLOUT */
        let isOver = core.withLock { core.locked.phase == .closed || core.locked.end != nil && core.locked.end != .endOfStream }
        return isOver ? nil : try core.transport.descriptorSide?.withDescriptor(body)
    }
}
