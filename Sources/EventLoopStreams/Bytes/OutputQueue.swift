// Written bytes that the kernel has not taken yet.

/// A queue of arrays. Long ones are referenced, not copied; short ones behind others are gathered.
struct OutputQueue: Sendable {
    private var segments: [[UInt8]] = []
    /// The first segment that is not sent completely, and how many of its bytes are sent.
    private var head = 0
    private var sentOfHead = 0
    /// The last segment was made here, to gather short ones.
    private var lastIsGathered = false
    private(set) var count = 0

    /// An array of up to this many bytes is copied, which costs less than a part of its own for the kernel.
    private static let gatheredLength = 512
    static let gatheredCapacity = 4_096
    /// How many parts one call passes to the kernel.
    static let partLimit = 16

    var isEmpty: Bool { count == 0 }

    mutating func append(_ bytes: [UInt8]) {
        if bytes.isEmpty || bytes.withUnsafeBytes({ gather($0) }) { return }
        segments.append(bytes)
        lastIsGathered = false
        count += bytes.count
    }

    /// Copies a few bytes behind others. False if they are many, or the first.
    @inline(__always) mutating func gather(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard count > 0, bytes.count <= Self.gatheredLength else { return false }
        let last = segments.count - 1
        if lastIsGathered && segments[last].count + bytes.count <= Self.gatheredCapacity {
            segments[last].append(contentsOf: bytes)
        } else {
            var gathered: [UInt8] = []
            gathered.reserveCapacity(Self.gatheredCapacity)
            gathered.append(contentsOf: bytes)
            segments.append(gathered)
            lastIsGathered = true
        }
        count += bytes.count
        return true
    }

    /// Moves everything of `other` behind what is here.
    mutating func append(contentsOf other: consuming OutputQueue) {
        if isEmpty { self = other; return }
        for index in other.head..<other.segments.count {
            append(index == other.head ? Array(other.segments[index].dropFirst(other.sentOfHead)) : other.segments[index])
        }
    }

    mutating func dropFirst(_ length: Int) {
        count -= length
        if count == 0 { return clear() }
        var left = length + sentOfHead
        while left >= segments[head].count {  // ends: bytes are left
            left -= segments[head].count
            segments[head] = []
            head += 1
        }
        sentOfHead = left
        if head >= 64 && head * 2 > segments.count {
            segments.removeFirst(head)
            head = 0
        }
    }

    mutating func removeAll() { clear() }

    private mutating func clear() {
        // The usual case, without the general machinery.
        if segments.count == 1 { segments.removeLast() } else { segments.removeAll(keepingCapacity: segments.capacity <= Self.partLimit) }
        (head, sentOfHead, lastIsGathered, count) = (0, 0, false, 0)
    }

    /// Passes the first parts to the transport. There must be one.
    func write(to transport: any StreamTransport) -> TransferResult {
        let length = min(segments.count - head, Self.partLimit)
        if length > 1 {
            return withUnsafeTemporaryAllocation(of: UnsafeRawBufferPointer.self, capacity: length) {
                write($0, from: 0, length, to: transport)
            }
        }
        return segments[head].withUnsafeBytes { bytes in
            var part = UnsafeRawBufferPointer(rebasing: bytes[sentOfHead...])
            return withUnsafePointer(to: &part) { transport.write(UnsafeBufferPointer(start: $0, count: 1)) }
        }
    }

    /// One call inside another, because the address of an array is valid only inside its own call.
    private func write(
        _ parts: UnsafeMutableBufferPointer<UnsafeRawBufferPointer>, from index: Int, _ length: Int, to transport: any StreamTransport
    ) -> TransferResult {
        if index == length { return transport.write(UnsafeBufferPointer(rebasing: parts[..<length])) }
        return segments[head + index].withUnsafeBytes { bytes in
            parts.initializeElement(at: index, to: index == 0 ? UnsafeRawBufferPointer(rebasing: bytes[sentOfHead...]) : bytes)
            return write(parts, from: index + 1, length, to: transport)
        }
    }

    /// Passes at most `limit` of the first bytes to the layer, and drops them if it has taken them. There must be one.
    mutating func passFirst(_ limit: Int, to layer: any StreamLayer) -> LayerWrite {
        let (length, result) = segments[head].withUnsafeBytes { bytes in
            let first = UnsafeRawBufferPointer(rebasing: bytes[sentOfHead...].prefix(limit))
            return (first.count, layer.write(first))
        }
        if result == .wrote { dropFirst(length) }
        return result
    }
}
