// What goes over a connection of named ports: frames, and how they are read. Pure: bytes in, frames out.
//
// A frame, all numbers with the least significant byte first:
//
//      0  1  mark, 0xE7
//      1  1  version, 1
//      2  1  kind: see `Frame.Kind`
//      3  1  how many descriptors come with it, at most 64; with its first byte
//      4  4  length of the body
//      8  8  conversation: a reply has its request's
//     16  4  id of the message; of a refusal, why
//     20     the body
//      …  1  seal: 1, or 0 if the sender has given the frame up while it was on its way, and it is not to be read
//
// It needs nothing but the standard library, so that the fuzzer can compile this file alone.

/// One frame, read.
struct Frame: Sendable, Equatable {
    enum Kind: UInt8, Sendable {
        /// One way: no answer is wanted.
        case message = 1
        case request = 2
        case reply = 3
        /// The handler returned nil. The body is empty.
        case emptyReply = 4
        /// There is an answer, and it cannot be sent: `id` is a `Refusal`, the body its number.
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

    /// The bytes before the body, which the caller knows to be shorter than 4 GiB.
    static func header(_ kind: Kind, descriptors: Int, length: Int, conversation: UInt64, id: Int32) -> FrameHeader {
        let first =
            UInt64(magic) | UInt64(version) << 8 | UInt64(kind.rawValue) << 16 | UInt64(UInt8(descriptors)) << 24
            | UInt64(UInt32(length)) << 32
        return FrameHeader(words: (first.littleEndian, conversation.littleEndian, UInt32(bitPattern: id).littleEndian))
    }
}

/// The twenty bytes of a header, in the order in which they are sent.
struct FrameHeader: Sendable {
    // Two words of eight bytes and one of four: no padding before the last.
    var words: (UInt64, UInt64, UInt32)

    func withBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
        withUnsafeBytes(of: words) { body(UnsafeRawBufferPointer(rebasing: $0[..<Frame.headerSize])) }
    }
}

/// Why a peer's bytes are not frames. Whoever sends such bytes loses the connection.
enum FrameError: Error, Equatable {
    case badMagic(UInt8)
    case badVersion(UInt8)
    case badKind(UInt8)
    case tooManyDescriptors(Int)
    case tooLong(Int)
    case badSeal(UInt8)
    /// A kind that has no body, with one; or a body of a size that its kind does not have.
    case badLength(Int)

    var sentence: String {
        switch self {
        case .badMagic(let byte): "a frame began with \(byte)"
        case .badVersion(let version): "a frame was of version \(version), which is not known here"
        case .badKind(let kind): "a frame was of kind \(kind), which is not known here"
        case .tooManyDescriptors(let count): "a frame was to bring \(count) descriptors"
        case .tooLong(let length): "a frame was to have \(length) bytes"
        case .badSeal(let byte): "a frame ended with \(byte)"
        case .badLength(let length): "a frame had \(length) bytes, which its kind has not"
        }
    }
}

/// Makes frames of bytes that come in pieces of any size. Takes no memory for a length that is only announced.
struct FrameDecoder: Sendable {
    let maximumLength: Int
    private var buffer: [UInt8] = []
    private var start = 0
    /// The header at `start`, once it has been looked at.
    private var header: Header?
    /// What was wrong; said again at every further call.
    private var error: FrameError?
    /// A longer buffer is given back when its frame has gone out of it.
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

    /// Bytes that were taken in and belong to no frame that was handed out.
    var heldBytes: Int { buffer.count - start }
    /// A frame has begun and not ended.
    var isInsideFrame: Bool { heldBytes > 0 }

    /// The memory that it has: for the announced frame and what was appended behind it, or twice the held bytes, whichever is less; and a little.
    var capacity: Int { buffer.capacity }
    /// The bytes of the first frame, once its header has been looked at and until it is handed out; else 0.
    var announcedBytes: Int { header?.total ?? 0 }

    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        if error != nil { return }
        if buffer.count + bytes.count > buffer.capacity { makeRoom(for: bytes.count) }
        buffer.append(contentsOf: bytes)
    }

    /// Forgets all bytes.
    mutating func clear() { (buffer, start, header) = ([], 0, nil) }

    /// Grows by doubling, so that each byte is moved a few times at most, but not beyond the frame that is coming.
    private mutating func makeRoom(for count: Int) {
        buffer.removeFirst(start)
        start = 0
        let needed = buffer.count + count
        if needed > buffer.capacity {
            buffer.reserveCapacity(max(needed, min(2 * buffer.capacity, max(announcedBytes, Self.keptCapacity))))
        }
    }

    /// Whether `next()` would hand out a frame or throw. Descriptors of every frame whose header is there have been announced by then.
    mutating func hasNext() -> Bool {
        if error != nil { return true }
        do { return try readHeader().map { heldBytes >= $0.total } ?? false } catch { return true }
    }

    /// How many descriptors come with the first frame; nil while its header has not come whole.
    mutating func announcedDescriptors() -> Int? {
        guard let header = try? readHeader() else { return nil }
        return header.descriptorCount
    }

    /// The next frame that has come whole. One that its sender has given up is handed out without its body and with `isCancelled`, because
    /// its descriptors must be taken care of.
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
        // What can be seen to be wrong is said at once, not when the rest has come.
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
        // A refusal says that something was longer than the limit, however small that is.
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

    /// Moves what is left to the front when that is less than what has gone, so that each byte is moved once at most in the mean.
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
