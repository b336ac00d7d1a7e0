// Receives frames, and the descriptors that come with them, from a connection.
//
// Lifecycle: `scratch` belongs to the creator, who may use it for other receivers too. Received descriptors belong to the receiver until
// `next` returns them or `close` closes them.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// The bytes and descriptors received on one connection. Used by one thread at a time, which its owner determines.
struct FrameReceiver: ~Copyable {
    enum ReceiveResult {
        case received
        /// There is nothing to read.
        case wouldBlock
        /// The other end has closed the connection, or the connection is broken.
        case ended
        case failed(RunLoop.PortError)
    }

    /// How to receive. See `cplatform_receive`.
    enum Mode: Int32 {
        case nonblocking = 0
        /// Waits for something to read, up to the limit that was set for the socket.
        case blocking
        /// Peeks first, so that no descriptor is lost if the process has no free number for it: the kernel would close it, on this thread.
        case peeking
        /// Fails if there are descriptors, and leaves them in the kernel.
        case refusing
    }

    private static let scratchSize = 1 << 16
    /// While more descriptors than this wait to be closed, a receiver that takes none fails when it receives another.
    private static let unwantedLimit = 64

    private var decoder: FrameDecoder
    /// Received descriptors, in the order of their frames.
    private var passed: [Int32] = []
    private let scratch: UnsafeMutableRawBufferPointer
    /// False at a client: replies bring no descriptors, and those of a hostile server are closed.
    private let takesDescriptors: Bool
    private let peer: Int32

    /// - Parameter peer: the id of the process at the other end, or 0.
    init(maximumLength: Int, takesDescriptors: Bool, peer: Int32, scratch: UnsafeMutableRawBufferPointer) {
        self.peer = peer
        decoder = FrameDecoder(maximumLength: maximumLength)
        self.takesDescriptors = takesDescriptors
        self.scratch = scratch
    }

    /// Allocates a buffer, which the caller frees.
    static func makeScratch() -> UnsafeMutableRawBufferPointer { .allocate(byteCount: scratchSize, alignment: 16) }

    /// Bytes of frames that `next` has not returned yet.
    var heldBytes: Int { decoder.heldBytes }
    /// The capacity of the buffer for them.
    var capacity: Int { decoder.capacity }
    /// The size of the frame that is being received, once its header is complete; otherwise 0.
    var announcedBytes: Int { decoder.announcedBytes }
    var heldDescriptors: Int { passed.count }
    /// Whether `next` would return a frame or throw, without another `receive`.
    mutating func hasNext() -> Bool { decoder.hasNext() }

    /// Reads once, at most `limit` bytes.
    mutating func receive(from descriptor: Int32, limit: Int = .max, _ mode: Mode = .nonblocking) -> ReceiveResult {
        var isTruncated = false
        let limit = min(limit, scratch.count)
        let count = receiveBytes(descriptor, limit, mode, &isTruncated)
        // Unwanted descriptors are received too: otherwise the kernel would close them, on this thread.
        let bringsUnwanted = !takesDescriptors && (isTruncated || !passed.isEmpty)
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

    private mutating func receiveBytes(_ descriptor: Int32, _ limit: Int, _ mode: Mode, _ isTruncated: inout Bool) -> Int64 {
        withUnsafeTemporaryAllocation(of: Int32.self, capacity: Int(CPLATFORM_PASSED_LIMIT)) { arrived in
            var (passedCount, areEarly) = (Int32(0), false)
            let count = cplatform_receive(
                descriptor, mode.rawValue, scratch.baseAddress, limit, arrived.baseAddress, &passedCount, &isTruncated, &areEarly)
            if areEarly {
                for copy in arrived[..<Int(passedCount)] { DescriptorCloser.close(copy, from: peer) }
            } else if passedCount > 0 {
                passed += arrived[..<Int(passedCount)]
            }
            return count
        }
    }

    /// Checks that the descriptors belong to the frame that is being received.
    ///
    /// Descriptors arrive with the first byte of their frame. So if only an incomplete frame is held, exactly its own are there. A peer
    /// that sends others would make this process keep them forever.
    private mutating func checkDescriptors() -> ReceiveResult {
        if !takesDescriptors || (passed.isEmpty && decoder.heldBytes == 0) || decoder.hasNext() { return .received }
        let isRight: Bool
        if let announced = decoder.announcedDescriptors() {
            isRight = passed.count == announced
        } else {
            isRight = passed.count <= (decoder.heldBytes > 0 ? Frame.descriptorLimit : 0)
        }
        return isRight ? .received : .failed(.protocolViolation("received \(passed.count) descriptors that no frame announced"))
    }

    /// Returns the next complete frame, without those that their sender has cancelled.
    mutating func next() throws(RunLoop.PortError) -> (frame: Frame, passed: RunLoop.PassedDescriptors)? {
        while true {  // ends: each iteration takes a frame out of the buffer
            let found: (frame: Frame, isCancelled: Bool)?
            do { found = try decoder.next() } catch { throw .protocolViolation(error.sentence) }
            guard let (frame, isCancelled) = found else { return nil }
            let descriptors = try takeDescriptors(frame.descriptorCount)
            // The check in `receive` could not see behind a complete frame.
            if case .failed(let error) = checkDescriptors() { throw error }
            if isCancelled { continue }
            return (frame, descriptors)
        }
    }

    private mutating func takeDescriptors(_ count: Int) throws(RunLoop.PortError) -> RunLoop.PassedDescriptors {
        if count == 0 || !takesDescriptors { return .none }
        if passed.count < count { throw .protocolViolation("a frame announced \(count) descriptors, but \(passed.count) arrived") }
        let descriptors = RunLoop.PassedDescriptors(Array(passed[..<count]), from: peer)
        passed.removeFirst(count)
        return descriptors
    }

    private mutating func closePassed() {
        for descriptor in passed { DescriptorCloser.close(descriptor, from: peer) }
        passed = []
    }

    /// Discards everything that `next` has not returned.
    mutating func close() {
        closePassed()
        decoder.clear()
    }
}
