// Frames with their descriptors, from a connection.
//
// Lifecycle: `scratch` is the owner's, who may use it for others meanwhile; descriptors that were received belong to the inlet until `next` hands
// them out or `close` closes them.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// What was read of one connection. For one thread at a time: its owner says which.
struct FrameInlet: ~Copyable {
    enum Outcome {
        case received
        /// There is nothing to read.
        case wouldBlock
        /// The other end has closed, or is broken.
        case ended
        case failed(RunLoop.PortError)
    }

    enum Manner: Int32 {
        case trying = 0
        /// Waits for something to read, as long as was said to the socket.
        case waiting
        /// Leaves descriptors where they are for which the process has no numbers: the kernel would close them, however long that takes.
        case wary
        /// Leaves all descriptors where they are, and fails.
        case refusing
    }

    private static let scratchSize = 1 << 16
    private var decoder: FrameDecoder
    /// In the order of their frames.
    private var passed: [Int32] = []
    private let scratch: UnsafeMutableRawBufferPointer

    /// A server's replies bring no descriptors. What a hostile one sends with them is closed.
    private let takesDescriptors: Bool
    private let peer: Int32
    /// While more descriptors than this wait to be closed, an inlet that takes none fails when it receives another.
    private static let unwantedLimit = 64

    /// - Parameter peer: the id of the process at the other end, or 0.
    init(maximumLength: Int, takesDescriptors: Bool, peer: Int32, scratch: UnsafeMutableRawBufferPointer) {
        self.peer = peer
        decoder = FrameDecoder(maximumLength: maximumLength)
        self.takesDescriptors = takesDescriptors
        self.scratch = scratch
    }

    /// To be freed by the caller.
    static func makeScratch() -> UnsafeMutableRawBufferPointer { .allocate(byteCount: scratchSize, alignment: 16) }

    var heldBytes: Int { decoder.heldBytes }
    /// The memory for them.
    var capacity: Int { decoder.capacity }
    /// The bytes of the frame that is coming, once its header is there; else 0.
    var announcedBytes: Int { decoder.announcedBytes }
    var heldDescriptors: Int { passed.count }
    /// Whether `next` has something to say without a further `receive`.
    mutating func hasNext() -> Bool { decoder.hasNext() }

    /// Reads once, `limit` bytes at most.
    mutating func receive(from descriptor: Int32, limit: Int = .max, _ manner: Manner = .trying) -> Outcome {
        var isTruncated = false
        let limit = min(limit, scratch.count)
        let count = receiveAll(descriptor, limit, manner, &isTruncated)
        let bringsUnwanted = !takesDescriptors && (isTruncated || !passed.isEmpty)
        // Taken all the same: the kernel would close what nobody takes, on this thread.
        if bringsUnwanted { closePassed() }
        if count < 0 {
            switch errno {
            case EAGAIN: return .wouldBlock
            case ECONNRESET, EPIPE, ENOTCONN: return .ended
            case let code: return .failed(.system(operation: "recvmsg", errno: code))
            }
        }
        if bringsUnwanted && (isTruncated || DescriptorCloser.pending > Self.unwantedLimit) {
            return .failed(.protocolViolation("the server sent descriptors with its replies, more than could be closed"))
        }
        if isTruncated { return .failed(.system(operation: "receiving descriptors", errno: EMFILE)) }
        if count == 0 { return .ended }
        decoder.append(UnsafeRawBufferPointer(rebasing: scratch[..<Int(count)]))
        return checkDescriptors()
    }

    private mutating func receiveAll(_ descriptor: Int32, _ limit: Int, _ manner: Manner, _ isTruncated: inout Bool) -> Int64 {
        withUnsafeTemporaryAllocation(of: Int32.self, capacity: Int(CPLATFORM_PASSED_LIMIT)) { arrived in
            var passedCount: Int32 = 0
            let count = cplatform_receive(
                descriptor, manner.rawValue, scratch.baseAddress, limit, arrived.baseAddress, &passedCount, &isTruncated)
            if passedCount > 0 { passed += arrived[..<Int(passedCount)] }
            return count
        }
    }

    /// Descriptors come with the first byte of their frame. So when only a part of a frame is left, exactly its own are there; a peer that sends
    /// others would have us keep them for ever.
    private mutating func checkDescriptors() -> Outcome {
        if !takesDescriptors || (passed.isEmpty && decoder.heldBytes == 0) || decoder.hasNext() { return .received }
        let isRight: Bool
        if let announced = decoder.announcedDescriptors() {
            isRight = passed.count == announced
        } else {
            isRight = passed.count <= (decoder.isInsideFrame ? Frame.descriptorLimit : 0)
        }
        return isRight ? .received : .failed(.protocolViolation("\(passed.count) descriptors came that no frame announced"))
    }

    /// The next frame that has come whole and that its sender has not given up.
    mutating func next() throws(RunLoop.PortError) -> (frame: Frame, passed: RunLoop.PassedDescriptors)? {
        while true {  // ends: each turn takes a frame off what was received
            let found: (frame: Frame, isGivenUp: Bool)?
            do { found = try decoder.next() } catch { throw .protocolViolation(error.sentence) }
            guard let (frame, isGivenUp) = found else { return nil }
            let descriptors = try takeDescriptors(frame.descriptorCount)
            // The check of what was received could not see behind a whole frame.
            if case .failed(let error) = checkDescriptors() { throw error }
            if isGivenUp { continue }
            return (frame, descriptors)
        }
    }

    private mutating func takeDescriptors(_ count: Int) throws(RunLoop.PortError) -> RunLoop.PassedDescriptors {
        if count == 0 || !takesDescriptors { return .none }
        if passed.count < count { throw .protocolViolation("a frame announced \(count) descriptors, and \(passed.count) came") }
        let descriptors = RunLoop.PassedDescriptors(Array(passed[..<count]), from: peer)
        passed.removeFirst(count)
        return descriptors
    }

    private mutating func closePassed() {
        for descriptor in passed { DescriptorCloser.close(descriptor, from: peer) }
        passed = []
    }

    /// Gives up what was received and not handed out.
    mutating func close() {
        closePassed()
        decoder.clear()
    }
}

/// One frame on its way out.
struct FrameOutlet: Sendable {
    let header: FrameHeader
    let body: [UInt8]
    var seal = Frame.whole
    /// How much of it has gone.
    var offset = 0

    init(_ kind: Frame.Kind, conversation: UInt64, id: Int32, body: [UInt8], descriptors: Int = 0) {
        header = Frame.header(kind, descriptors: descriptors, length: body.count, conversation: conversation, id: id)
        self.body = body
    }

    var conversation: UInt64 { UInt64(littleEndian: header.words.1) }
    var size: Int { Frame.headerSize + body.count + Frame.sealSize }
    var isSent: Bool { offset == size }
    var unsentBytes: Int { size - offset }

    /// Sends as much as there is room for. Zero, EAGAIN when something is left, or what is wrong.
    mutating func send(to descriptor: Int32, passing descriptors: [Int32] = []) -> Int32 {
        while !isSent {  // ends: each turn sends something, or returns
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
