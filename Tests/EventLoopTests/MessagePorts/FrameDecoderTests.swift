// Rules proved here, of the pure decoder (docs/message-ports.md, the wire format):
//  - Frames are decoded however their bytes are split. None is returned early, and only an incomplete frame is kept.
//  - An invalid byte is detected at once, and reported again by every further call.
//  - A length that is only announced uses no memory.

import EventLoopTestSupport
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.tags(.memory)) struct FrameDecoderTests {
    private func bytes(of frame: Frame, seal: UInt8 = Frame.complete) -> [UInt8] {
        let header = Frame.header(
            frame.kind, descriptors: frame.descriptorCount, length: frame.body.count, conversation: frame.conversation, id: frame.id)
        return header.withBytes { Array($0) } + frame.body + [seal]
    }

    private static let frames = [
        Frame(kind: .message, conversation: 0, id: -1, body: []),
        Frame(kind: .request, descriptorCount: 64, conversation: .max, id: .max, body: Array(0...255)),
        Frame(kind: .reply, conversation: 1, id: .min, body: [0xE7, 1, 2, 3]),
        Frame(kind: .emptyReply, conversation: 2, id: 0, body: []),
        Frame(kind: .refusal, conversation: 3, id: 1, body: [1, 2, 3, 4, 5, 6, 7, 8]),
        Frame(kind: .message, conversation: 4, id: 7, body: [UInt8](repeating: 9, count: 1_000)),
    ]

    @Test(arguments: [1, 2, 3, 7, 19, 20, 21, 22, 100, 10_000])
    func `frames are decoded however their bytes are split`(size: Int) throws {
        let all = Self.frames.flatMap { bytes(of: $0) }
        var decoder = FrameDecoder(maximumLength: 1_000)
        var found: [Frame] = []
        var offset = 0
        while offset < all.count {
            let piece = all[offset..<min(offset + size, all.count)]
            piece.withUnsafeBytes { decoder.append($0) }
            offset += piece.count
            while let (frame, isCancelled) = try decoder.next() {
                #expect(!isCancelled)
                found.append(frame)
            }
            let more = decoder.hasNext()
            #expect(!more)
        }
        #expect(found == Self.frames)
        #expect(decoder.heldBytes == 0)
    }

    @Test func `a cancelled frame has no body, and the next one is decoded`() throws {
        var decoder = FrameDecoder(maximumLength: 100)
        let first = Frame(kind: .request, descriptorCount: 2, conversation: 5, id: 1, body: [1, 2, 3])
        let second = Frame(kind: .request, conversation: 6, id: 2, body: [4])
        (bytes(of: first, seal: Frame.cancelled) + bytes(of: second)).withUnsafeBytes { decoder.append($0) }
        let found = try decoder.next()
        let cancelled = try #require(found)
        #expect(cancelled.isCancelled && cancelled.frame.body.isEmpty && cancelled.frame.descriptorCount == 2)
        let afterwards = try decoder.next()
        let next = try #require(afterwards)
        #expect(next.frame == second && !next.isCancelled)
        let more = decoder.hasNext()
        #expect(!more)
    }

    @Test(arguments: [
        ([0], FrameError.badMagic(0)), ([0xE7, 2], .badVersion(2)), ([0xE7, 0, 1], .badVersion(0)),
        ([0xE7, 1, 0, 0] + [UInt8](repeating: 0, count: 16), .badKind(0)),
        ([0xE7, 1, 6, 0] + [UInt8](repeating: 0, count: 16), .badKind(6)),
        ([0xE7, 1, 1, 65] + [UInt8](repeating: 0, count: 16), .tooManyDescriptors(65)),
        ([0xE7, 1, 1, 0, 101] + [UInt8](repeating: 0, count: 15), .tooLong(101)),
        ([0xE7, 1, 1, 0, 255, 255, 255, 255] + [UInt8](repeating: 0, count: 12), .tooLong(Int(UInt32.max))),
        ([0xE7, 1, 4, 0, 1] + [UInt8](repeating: 0, count: 15), .badLength(1)),
        ([0xE7, 1, 5, 0, 7] + [UInt8](repeating: 0, count: 15), .badLength(7)),
        ([0xE7, 1, 1, 0] + [UInt8](repeating: 0, count: 16) + [2], .badSeal(2)),
    ])
    func `an error is detected at the first wrong byte and reported again`(bytes: [UInt8], error: FrameError) throws {
        var decoder = FrameDecoder(maximumLength: 100)
        if error != .badVersion(0) {
            bytes.dropLast().withUnsafeBytes { decoder.append($0) }
            let more = decoder.hasNext()
            #expect(!more)
            [bytes.last!].withUnsafeBytes { decoder.append($0) }
        } else {
            bytes.withUnsafeBytes { decoder.append($0) }
        }
        let wrong = decoder.hasNext()
        #expect(wrong)
        for _ in 0..<2 { #expect(throws: error) { _ = try decoder.next() } }
        [0xE7, 1].withUnsafeBytes { decoder.append($0) }
        #expect(throws: error) { _ = try decoder.next() }
        #expect(decoder.heldBytes == 0)
        #expect(!error.sentence.isEmpty)
    }

    @Test func `the header announces descriptors`() throws {
        var decoder = FrameDecoder(maximumLength: 100)
        let all = bytes(of: Frame(kind: .message, descriptorCount: 3, conversation: 0, id: 0, body: [1]))
        all[..<19].withUnsafeBytes { decoder.append($0) }
        let early = decoder.announcedDescriptors()
        #expect(early == nil)
        all[19..<20].withUnsafeBytes { decoder.append($0) }
        let announced = decoder.announcedDescriptors()
        #expect(announced == 3)
    }

    @Test func `a header has twenty bytes in the documented layout`() {
        let header = Frame.header(.reply, descriptors: 5, length: 0x0403_0201, conversation: 0x0807_0605_0403_0201, id: 0x0403_0201)
        #expect(header.withBytes { Array($0) } == [0xE7, 1, 3, 5, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4])
    }
}
