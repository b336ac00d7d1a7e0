// One client of a LocalMessagePort, as the port sees it.
//
// Lifecycle of the descriptor: accepted by `PortAcceptor` and closed by `PortServer.drop`, on a loop's thread or when the port has ended.

internal import EventLoop
internal import EventLoopLibC

/// Touched only by the thread that serves the port.
final class ServedConnection {
    let token: UInt64
    let descriptor: Int32
    /// The client's process, or 0 where the platform does not report it.
    let process: Int32
    var receiver: FrameReceiver
    /// Replies that the socket had no room for; the first may be sent in part. While there are any, the connection is not read or served.
    var outgoing: [OutgoingFrame] = []
    /// False once a write has failed because the client no longer reads.
    var canWrite = true
    var isClosed = false
    /// What the port's set watches it for; nil if it is not in the set.
    var watched: Readiness? = .read

    // MARK: Owned by PortScheduler

    /// It is among the connections that have a complete frame.
    var isQueued = false
    /// Its complete frame waits until clients have read replies.
    var isDeferred = false
    /// A message of it has been handled.
    var hasSpoken = false
    /// The round in which something last arrived from it.
    var lastHeard: UInt64 = 0

    // MARK: Owned by PortLimits

    /// It is not read until there is memory for its frame, or until its process may send descriptors again.
    var isWaiting = false
    /// Its process had few free descriptors when it was accepted.
    var isNearDescriptorLimit = false
    /// The bytes of replies and the descriptors that the port has counted for it.
    var countedReplies = 0
    var countedDescriptors = 0
    /// The round in which its last message was handled, or since which it holds descriptors.
    var heldSince: UInt64 = 0
    /// Its progress when its stall time was restarted.
    var stallMark = StallDetector.Mark()

    init(token: UInt64, descriptor: Int32, process: Int32, maximumLength: Int, scratch: UnsafeMutableRawBufferPointer) {
        (self.token, self.descriptor, self.process) = (token, descriptor, process)
        receiver = FrameReceiver(maximumLength: maximumLength, takesDescriptors: true, peer: process, scratch: scratch)
    }

    /// The bytes of the replies that it holds: each is held whole until its last byte is sent.
    var replyBytes: Int { outgoing.isEmpty ? 0 : outgoing.reduce(0) { $0 + $1.size } }
    var unsentBytes: Int { outgoing.isEmpty ? 0 : outgoing.reduce(0) { $0 + $1.unsentBytes } }

    /// Sends as many of the replies as the socket takes. Returns false if some are left.
    func flush() -> Bool {
        while canWrite, !outgoing.isEmpty {  // ends: each iteration removes a reply, or returns, or ends the writing
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
