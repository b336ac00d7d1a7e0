// One client of a LocalMessagePort, as the port sees it.
//
// Lifecycle of the descriptor: accepted by the port, closed by `PortServer.drop(_:)`, in a loop's thread or when the port has ended.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Touched by whoever serves the port, who is one thread at a time.
final class ServedConnection {
    let token: UInt64
    let descriptor: Int32
    /// The client's process, or 0 where the platform does not say.
    let process: Int32
    @exclusivity(unchecked) var inlet: FrameInlet
    /// Replies, or the rest of one, that the client has not taken yet. While there are any nothing more of it is read or handled.
    @exclusivity(unchecked) var outlets: [FrameOutlet] = []
    /// False once a write has said that nobody reads any more.
    @exclusivity(unchecked) var canWrite = true
    /// It stands in the list of those with a frame that has come whole.
    @exclusivity(unchecked) var isQueued = false
    @exclusivity(unchecked) var isClosed = false
    /// What the set watches for; nil when the connection is not in it.
    @exclusivity(unchecked) var watched: Readiness? = .read
    /// It is not read until there is room for its frame, or for descriptors.
    @exclusivity(unchecked) var isWaiting = false
    /// Its complete frame waits until clients have read replies.
    @exclusivity(unchecked) var isDeferred = false
    /// A message of it has been handled.
    @exclusivity(unchecked) var hasSpoken = false
    /// The process had few descriptors left when it was accepted.
    @exclusivity(unchecked) var isWary = false
    /// When it was last heard, in the port's own count.
    @exclusivity(unchecked) var lastHeard: UInt64 = 0
    /// What it makes the port keep, as the port has counted it; and since when without a message of it handled, in the port's own count.
    @exclusivity(unchecked) var countedUnsent = 0
    @exclusivity(unchecked) var countedDescriptors = 0
    @exclusivity(unchecked) var heldSince: UInt64 = 0
    /// Since when it makes no progress.
    @exclusivity(unchecked) var mark = PortPatience.Mark()

    init(token: UInt64, descriptor: Int32, process: Int32, maximumLength: Int, scratch: UnsafeMutableRawBufferPointer) {
        (self.token, self.descriptor, self.process) = (token, descriptor, process)
        inlet = FrameInlet(maximumLength: maximumLength, takesDescriptors: true, peer: process, scratch: scratch)
    }

    /// What waits to be sent. The memory of a reply goes with its last byte.
    var unsentBytes: Int { outlets.isEmpty ? 0 : outlets.reduce(0) { $0 + $1.unsentBytes } }

    /// Sends what waits. False when something is left to wait for.
    func flush() -> Bool {
        while canWrite, !outlets.isEmpty {  // ends: one goes a turn, or nothing does
            switch outlets[0].send(to: descriptor) {
            case 0: outlets.removeFirst()
            case EAGAIN: return false
            default:
                // What it has sent before it went is served all the same.
                canWrite = false
            }
        }
        outlets = []
        return true
    }
}
