// CFData.h as far as CFSocket's users need it: bytes that do not change.
//
// Lifecycle of the bytes: copied by init, freed by deinit.

/// A part of a sequence. See `CFRange`.
// If this is ambiguous: remove the import of CoreFoundation.
public struct CFRange: Sendable {
    /// The index of the first element.
    public var location: CFIndex
    /// The number of elements.
    public var length: CFIndex

    /// An empty range at zero.
    public init() { self.init(location: 0, length: 0) }

    /// Every field, in the order of the C structure.
    public init(location: CFIndex, length: CFIndex) { (self.location, self.length) = (location, length) }
}

/// A range. Thread-safe. See `CFRangeMake`.
public func CFRangeMake(_ loc: CFIndex, _ len: CFIndex) -> CFRange { CFRange(location: loc, length: len) }

/// Bytes that do not change, such as a socket address. Thread-safe. See `CFData`.
// If this is ambiguous: remove the import of CoreFoundation.
public final class CFData: @unchecked Sendable {
    // SAFETY: constants. Only `init` writes the bytes.
    let bytes: UnsafePointer<UInt8>
    let count: Int

    /// A copy of `source`.
    init(_ source: UnsafeRawBufferPointer) {
        // Not nil for no bytes, because Core Foundation's is not.
        let memory = UnsafeMutableRawPointer.allocate(byteCount: max(source.count, 1), alignment: MemoryLayout<UInt64>.alignment)
        if let start = source.baseAddress { memory.copyMemory(from: start, byteCount: source.count) }
        bytes = UnsafePointer(memory.bindMemory(to: UInt8.self, capacity: max(source.count, 1)))
        count = source.count
    }

    deinit { UnsafeMutableRawPointer(mutating: bytes).deallocate() }

    /// Without bytes.
    static let empty = CFData(UnsafeRawBufferPointer(start: nil, count: 0))

    func hasSameBytes(as other: CFData) -> Bool {
        UnsafeBufferPointer(start: bytes, count: count).elementsEqual(UnsafeBufferPointer(start: other.bytes, count: other.count))
    }

    var hash: CFHashCode {
        var hasher = Hasher()
        hasher.combine(bytes: UnsafeRawBufferPointer(start: bytes, count: count))
        return CFHashCode(bitPattern: hasher.finalize())
    }
}

/// The number of the type. Thread-safe. See `CFDataGetTypeID`.
public func CFDataGetTypeID() -> CFTypeID { 7 }

/// Copies bytes. `bytes` may be nil if `length` is zero. Never returns nil. Thread-safe. See `CFDataCreate`.
public func CFDataCreate(_ allocator: CFAllocator!, _ bytes: UnsafePointer<UInt8>!, _ length: CFIndex) -> CFData! {
    precondition(length >= 0, "CFDataCreate was called with the length \(length); pass zero or more")
    if length == 0 { return .empty }
    return CFData(UnsafeRawBufferPointer(start: given(bytes, "bytes"), count: length))
}

/// The same object, which does not change. Thread-safe. See `CFDataCreateCopy`.
public func CFDataCreateCopy(_ allocator: CFAllocator!, _ theData: CFData!) -> CFData! { given(theData, "data") }

/// The number of bytes. Thread-safe. See `CFDataGetLength`.
public func CFDataGetLength(_ theData: CFData!) -> CFIndex { given(theData, "data").count }

/// The bytes, which live as long as the object. Thread-safe. See `CFDataGetBytePtr`.
public func CFDataGetBytePtr(_ theData: CFData!) -> UnsafePointer<UInt8>! { given(theData, "data").bytes }

/// Copies the bytes of a range to `buffer`. A range outside the data is a precondition failure. Thread-safe. See `CFDataGetBytes`.
public func CFDataGetBytes(_ theData: CFData!, _ range: CFRange, _ buffer: UnsafeMutablePointer<UInt8>!) {
    let data = given(theData, "data")
    precondition(
        range.location >= 0 && range.length >= 0 && range.location <= data.count && range.length <= data.count - range.location,
        "CFDataGetBytes was called with location \(range.location) and length \(range.length) for \(data.count) bytes; pass a part of them")
    if range.length > 0 { given(buffer, "buffer").update(from: data.bytes + range.location, count: range.length) }
}
