// One frame that is being sent.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// A frame and how much of it has been sent.
struct OutgoingFrame: Sendable {
    let header: FrameHeader
    let body: [UInt8]
    var seal = Frame.complete
    /// How many bytes have been sent.
    var offset = 0

    init(_ kind: Frame.Kind, conversation: UInt64, id: Int32, body: [UInt8], descriptors: Int = 0) {
        header = Frame.header(kind, descriptors: descriptors, length: body.count, conversation: conversation, id: id)
        self.body = body
    }

    var conversation: UInt64 { UInt64(littleEndian: header.words.1) }
    var size: Int { Frame.headerSize + body.count + Frame.sealSize }
    var isSent: Bool { offset == size }
    var unsentBytes: Int { size - offset }

    /// Sends as much as the socket takes. Returns 0 if the frame is sent, EAGAIN if some of it is left, or another errno.
    mutating func send(to descriptor: Int32, passing descriptors: [Int32] = []) -> Int32 {
        while !isSent {  // ends: each iteration sends something, or returns
            let count: Int64 = header.withBytes { header in
                body.withUnsafeBytes { body in
                    cplatform_send(
                        descriptor, header.baseAddress, header.count, body.baseAddress, body.count, &seal, Frame.sealSize, offset,
                        descriptors, offset == 0 ? Int32(descriptors.count) : 0)
                }
            }
            if count < 0 { return errno }
            offset += Int(count)
        }
        return 0
    }
}
