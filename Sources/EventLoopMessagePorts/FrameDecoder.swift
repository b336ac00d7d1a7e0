// The wire format of named ports, and its decoder. Pure: bytes in, frames out.
//
// A frame; all numbers are little-endian:
//
//      0  1  magic, 0xE7
//      1  1  version, 1
//      2  1  kind: see `Frame.Kind`
//      3  1  number of descriptors that come with the first byte of the frame, at most 64
//      4  4  length of the body
//      8  8  conversation: a reply has the same one as its request
//     16  4  id of the message; in a refusal, the reason
//     20     body
//      …  1  seal: 1 if the frame is complete, 0 if its sender cancelled it in the middle and the receiver skips it
//
// This file imports only the standard library, so that the fuzzer can compile it alone.

/// A received frame.
struct Frame: Sendable, Equatable {
    enum Kind: UInt8, Sendable {
        /// One-way: there is no reply.
        case message = 1
        case request = 2
        case reply = 3
        /// The handler returned nil. The body is empty.
        case emptyReply = 4
        /// The reply cannot be sent: `id` is a reason of `Refusal`, the body a number.
        case refusal = 5
    }

    var kind: Kind
    var descriptorCount = 0
    var conversation: UInt64
    var id: Int32 = 0
    var body: [UInt8] = []

    static let headerSize = 20
    static let sealSize = 1
    static let magic: UInt8 = 0xE7
    static let version: UInt8 = 1
    static let descriptorLimit = 64
    static let refusalLength = 8
    static let complete: UInt8 = 1
    static let cancelled: UInt8 = 0

    /// The bytes before the body. `length` must be less than 4 GiB.
    static func header(_ kind: Kind, descriptors: Int, length: Int, conversation: UInt64, id: Int32) -> FrameHeader {
        let first =
            UInt64(magic) | UInt64(version) << 8 | UInt64(kind.rawValue) << 16 | UInt64(UInt8(descriptors)) << 24
            | UInt64(UInt32(length)) << 32
        return FrameHeader(words: (first.littleEndian, conversation.littleEndian, UInt32(bitPattern: id).littleEndian))
    }
}

/// The twenty bytes of a header, in wire order.
struct FrameHeader: Sendable {
    // Two words of eight bytes and one of four, so there is no padding before the last.
    var words: (UInt64, UInt64, UInt32)

    func withBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
        withUnsafeBytes(of: words) { body(UnsafeRawBufferPointer(rebasing: $0[..<Frame.headerSize])) }
    }
}

/// Why a peer's bytes are not frames. The receiver closes the connection.
enum FrameError: Error, Equatable {
    case badMagic(UInt8)
    case badVersion(UInt8)
    case badKind(UInt8)
    case tooManyDescriptors(Int)
    case tooLong(Int)
    case badSeal(UInt8)
    /// The body has a length that is not valid for its kind.
    case badLength(Int)

    var sentence: String {
        switch self {
        case .badMagic(let byte): "a frame begins with byte \(byte)"
        case .badVersion(let version): "a frame has the unknown version \(version)"
        case .badKind(let kind): "a frame has the unknown kind \(kind)"
        case .tooManyDescriptors(let count): "a frame announces \(count) descriptors"
        case .tooLong(let length): "a frame announces \(length) bytes"
        case .badSeal(let byte): "a frame ends with byte \(byte)"
        case .badLength(let length): "a frame has \(length) bytes, which is not valid for its kind"
        }
    }
}

/// Decodes frames from bytes that arrive in pieces of any size. Allocates no memory for a length that is only announced.
struct FrameDecoder: Sendable {
    let maximumLength: Int
    private var buffer: [UInt8] = []
    private var start = 0
    /// The header at `start`, once it has been decoded.
    private var header: Header?
    /// Thrown again by every further call.
    private var error: FrameError?
    /// A larger buffer is freed when its frame has been taken out of it.
    private static let keptCapacity = 1 << 14

    private struct Header {
        let kind: Frame.Kind
        let descriptorCount: Int
        let length: Int
        let conversation: UInt64
        let id: Int32
        var total: Int { Frame.headerSize + length + Frame.sealSize }
    }

    init(maximumLength: Int) { self.maximumLength = maximumLength }

    /// Bytes of frames that `next` has not returned yet.
    var heldBytes: Int { buffer.count - start }

    /// The allocated memory: at most a little more than the announced frame and the bytes behind it, or twice the held bytes, whichever is
    /// less.
    var capacity: Int { buffer.capacity }
    /// The size of the first frame, from the decoding of its header until `next` returns it; otherwise 0.
    var announcedBytes: Int { header?.total ?? 0 }

    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        if error != nil { return }
        if buffer.count + bytes.count > buffer.capacity { makeRoom(for: bytes.count) }
        buffer.append(contentsOf: bytes)
    }

    /// Discards all bytes.
    mutating func clear() { (buffer, start, header) = ([], 0, nil) }

    /// Doubles the capacity, so that each byte is moved a few times at most, but not beyond the announced frame.
    private mutating func makeRoom(for count: Int) {
        buffer.removeFirst(start)
        start = 0
        let needed = buffer.count + count
        if needed > buffer.capacity {
            buffer.reserveCapacity(max(needed, min(2 * buffer.capacity, max(announcedBytes, Self.keptCapacity))))
        }
    }

    /// Whether `next()` would return a frame or throw. Decodes the header of the first frame if it is complete.
    mutating func hasNext() -> Bool {
        if error != nil { return true }
        do { return try readHeader().map { heldBytes >= $0.total } ?? false } catch { return true }
    }

    /// How many descriptors come with the first frame; nil while its header is incomplete.
    mutating func announcedDescriptors() -> Int? { (try? readHeader())?.descriptorCount }

    /// Returns the next complete frame. A cancelled one comes without its body, because the caller must still close its descriptors.
    mutating func next() throws(FrameError) -> (frame: Frame, isCancelled: Bool)? {
        guard let header = try readHeader(), heldBytes >= header.total else { return nil }
        let end = start + header.total
        let seal = buffer[end - 1]
        if seal != Frame.complete && seal != Frame.cancelled { throw fail(.badSeal(seal)) }
        var frame = Frame(
            kind: header.kind, descriptorCount: header.descriptorCount, conversation: header.conversation, id: header.id)
        if seal == Frame.complete { frame.body = Array(buffer[(start + Frame.headerSize)..<(end - 1)]) }
        start = end
        self.header = nil
        compact()
        return (frame, seal == Frame.cancelled)
    }

    private mutating func readHeader() throws(FrameError) -> Header? {
        if let error { throw error }
        if let header { return header }
        let count = heldBytes
        if count == 0 { return nil }
        // Wrong bytes are reported at once, without waiting for the rest of the header.
        let seen = start
        if buffer[seen] != Frame.magic { throw fail(.badMagic(buffer[seen])) }
        if count > 1 && buffer[seen + 1] != Frame.version { throw fail(.badVersion(buffer[seen + 1])) }
        if count < Frame.headerSize { return nil }
        guard let kind = Frame.Kind(rawValue: buffer[seen + 2]) else { throw fail(.badKind(buffer[seen + 2])) }
        let read = Header(
            kind: kind, descriptorCount: Int(buffer[seen + 3]), length: Int(number(at: 4, as: UInt32.self)),
            conversation: number(at: 8, as: UInt64.self), id: Int32(bitPattern: number(at: 16, as: UInt32.self)))
        if read.descriptorCount > Frame.descriptorLimit { throw fail(.tooManyDescriptors(read.descriptorCount)) }
        switch kind {
        // A refusal reports an exceeded limit, so the limit itself does not apply to it, however small it is.
        case .emptyReply where read.length != 0, .refusal where read.length != Frame.refusalLength: throw fail(.badLength(read.length))
        case .refusal: break
        default: if read.length > maximumLength { throw fail(.tooLong(read.length)) }
        }
        header = read
        return read
    }

    private func number<Number: FixedWidthInteger>(at offset: Int, as: Number.Type) -> Number {
        buffer.withUnsafeBytes { Number(littleEndian: $0.loadUnaligned(fromByteOffset: start + offset, as: Number.self)) }
    }

    private mutating func fail(_ error: FrameError) -> FrameError {
        self.error = error
        clear()
        return error
    }

    /// Moves the remaining bytes to the front if they are fewer than the removed ones, so that each byte is moved at most once on average.
    private mutating func compact() {
        let left = buffer.count - start
        if left == 0 {
            if buffer.capacity > Self.keptCapacity { buffer = [] } else { buffer.removeAll(keepingCapacity: true) }
            start = 0
        } else if buffer.capacity > Self.keptCapacity && 4 * left < buffer.capacity {
            buffer = Array(buffer[start...])
            start = 0
        } else if start > buffer.count - start {
            buffer.removeFirst(start)
            start = 0
        }
    }
}
