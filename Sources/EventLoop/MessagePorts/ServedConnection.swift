// One client of a LocalMessagePort, as the port sees it.
//
// Lifecycle of the descriptor: accepted by `PortAcceptor` and closed by `PortServer.drop`, on a loop's thread or when the port has ended.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Touched only by the thread that serves the port.
final class ServedConnection {
    let token: UInt64
    let descriptor: Int32
    /// The client's process, or 0 where the platform does not report it.
    let process: Int32
    @exclusivity(unchecked) var receiver: FrameReceiver
    /// Replies that the socket had no room for; the first may be sent in part. While there are any, the connection is not read or served.
    @exclusivity(unchecked) var outgoing: [OutgoingFrame] = []
    /// False once a write has failed because the client no longer reads.
    @exclusivity(unchecked) var canWrite = true
    @exclusivity(unchecked) var isClosed = false
    /// What the port's set watches it for; nil if it is not in the set.
    @exclusivity(unchecked) var watched: Readiness? = .read

    // MARK: Owned by PortScheduler

    /// It is among the connections that have a complete frame.
    @exclusivity(unchecked) var isQueued = false
    /// Its complete frame waits until clients have read replies.
    @exclusivity(unchecked) var isDeferred = false
    /// A message of it has been handled.
    @exclusivity(unchecked) var hasSpoken = false
    /// The round in which something last arrived from it.
    @exclusivity(unchecked) var lastHeard: UInt64 = 0

    // MARK: Owned by PortLimits

    /// It is not read until there is memory for its frame, or until its process may send descriptors again.
    @exclusivity(unchecked) var isWaiting = false
    /// Its process had few free descriptors when it was accepted.
    @exclusivity(unchecked) var isNearDescriptorLimit = false
    /// The unsent bytes and the descriptors that the port has counted for it.
    @exclusivity(unchecked) var countedUnsent = 0
    @exclusivity(unchecked) var countedDescriptors = 0
    /// The round in which its last message was handled, or since which it holds descriptors.
    @exclusivity(unchecked) var heldSince: UInt64 = 0
    /// Its progress when its stall time was restarted.
    @exclusivity(unchecked) var stallMark = StallDetector.Mark()

    init(token: UInt64, descriptor: Int32, process: Int32, maximumLength: Int, scratch: UnsafeMutableRawBufferPointer) {
        (self.token, self.descriptor, self.process) = (token, descriptor, process)
        receiver = FrameReceiver(maximumLength: maximumLength, takesDescriptors: true, peer: process, scratch: scratch)
    }

    var unsentBytes: Int { outgoing.isEmpty ? 0 : outgoing.reduce(0) { $0 + $1.unsentBytes } }

    /// Sends as many of the replies as the socket takes. Returns false if some are left.
    func flush() -> Bool {
        while canWrite, !outgoing.isEmpty {  // ends: each turn removes a reply, or returns, or ends the writing
            switch outgoing[0].send(to: descriptor) {
            case 0: outgoing.removeFirst()
            case EAGAIN: return false
            default:
                // Messages that arrived before are still served.
                canWrite = false
            }
        }
        outgoing = []
        return true
    }
}
