// One frame that is being sent.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// A frame and how much of it has been sent.
struct OutgoingFrame: Sendable {
    /// The most that a cancelled frame keeps of its body.
    static let keptWhenCancelled = 1 << 14

    let header: FrameHeader
    /// The size of the whole frame.
    let size: Int
    private(set) var body: [UInt8]
    private var seal = Frame.complete
    /// How many bytes have been sent.
    var offset = 0

    init(_ kind: Frame.Kind, conversation: UInt64, id: Int32, body: [UInt8], descriptors: Int = 0) {
        header = Frame.header(kind, descriptors: descriptors, length: body.count, conversation: conversation, id: id)
        size = Frame.headerSize + body.count + Frame.sealSize
        self.body = body
    }

    var conversation: UInt64 { UInt64(littleEndian: header.words.1) }
    var isSent: Bool { offset == size }
    var unsentBytes: Int { size - offset }

    /// Cancels a frame of which a part has been sent. The rest must follow, with a seal that makes the receiver skip the frame. Nobody reads its
    /// bytes, so these are zeros, and the message is released: it may be long before the other end reads on.
    mutating func cancel() {
        seal = Frame.cancelled
        body = [UInt8](repeating: 0, count: min(body.count, Self.keptWhenCancelled))
    }

    /// Sends as much as the socket takes. Returns 0 if the frame is sent, EAGAIN if some of it is left, or another errno.
    mutating func send(to descriptor: Int32, passing descriptors: [Int32] = []) -> Int32 {
        while !isSent {  // ends: each iteration sends something, or returns
            let count = sendOnce(to: descriptor, passing: descriptors)
            if count < 0 { return errno }
            offset += Int(count)
        }
        return 0
    }

    /// Returns the number of bytes that the socket took, or -1.
    private func sendOnce(to descriptor: Int32, passing descriptors: [Int32]) -> Int64 {
        var seal = seal
        let part = seal == Frame.complete ? (bodySize: body.count, sealSize: Frame.sealSize, start: offset) : cancelledPart
        return header.withBytes { header in
            body.withUnsafeBytes { body in
                cplatform_send(
                    descriptor, header.baseAddress, header.count, body.baseAddress, part.bodySize, &seal, part.sealSize, part.start,
                    descriptors, offset == 0 ? Int32(descriptors.count) : 0)
            }
        }
    }

    /// What is sent next of a cancelled frame: the rest of the header, and then what is kept of the body, as often as the header has announced.
    private var cancelledPart: (bodySize: Int, sealSize: Int, start: Int) {
        let left = size - Frame.sealSize - max(offset, Frame.headerSize)
        let count = min(left, body.count)
        return (count, count == left ? Frame.sealSize : 0, min(offset, Frame.headerSize))
    }
}
