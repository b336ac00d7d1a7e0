// Where bytes are read before their handler sees them: memory that all streams of a thread share.
//
// A stream that is idle, or whose handler takes everything, so needs no buffer of its own. A handler that runs its loop keeps its piece; streams that
// are served meanwhile get another. See spaces.c.

internal import CStreams

enum ReceiveSpace {
    static let size = Int(CSTREAMS_SPACE_SIZE)

    /// To be given back on the same thread.
    @inline(__always) static func take() -> UnsafeMutableRawPointer {
        guard let piece = cstreams_take_space() else {
            preconditionFailure("a byte stream's room for reading needs \(CSTREAMS_SPACE_SIZE) bytes, and the system refuses them")
        }
        return piece
    }

    @inline(__always) static func giveBack(_ piece: UnsafeMutableRawPointer) { cstreams_give_back_space(piece) }
}
