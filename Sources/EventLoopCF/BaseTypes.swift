// The types of CFBase.h and CFDate.h that the run loop's functions use, without Core Foundation.
//
// Typealiases have the same meaning as Core Foundation's, so that numbers of both are interchangeable.

public import EventLoop

/// An index, a count or an order. See `CFIndex`.
public typealias CFIndex = Int
/// A set of bits, such as the raw value of `CFRunLoopActivity`. See `CFOptionFlags`.
public typealias CFOptionFlags = UInt
/// A hash value. See `CFHashCode`.
public typealias CFHashCode = UInt
/// The number of a type, which `CFRunLoopGetTypeID()` and its siblings return. See `CFTypeID`.
public typealias CFTypeID = UInt
/// Seconds of the wall clock since January 1, 2001, 00:00 UTC. See `CFAbsoluteTime`.
public typealias CFAbsoluteTime = Double
/// A duration in seconds. See `CFTimeInterval`.
public typealias CFTimeInterval = Double

/// An allocator, of which there is none: the only value of `CFAllocator?` is nil, which Core Foundation takes for its default allocator.
public enum CFAllocator: Sendable {}

/// The default allocator: nil, as in Core Foundation.
public let kCFAllocatorDefault: CFAllocator! = nil

/// The seconds between January 1, 1970 and January 1, 2001.
public let kCFAbsoluteTimeIntervalSince1970: CFTimeInterval = 978_307_200
/// The seconds between January 1, 1904 and January 1, 2001.
public let kCFAbsoluteTimeIntervalSince1904: CFTimeInterval = 3_061_152_000

/// The present of the wall clock, in seconds since January 1, 2001. Thread-safe. See `CFAbsoluteTimeGetCurrent`.
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime {
    let (seconds, rest) = wallNanoseconds().quotientAndRemainder(dividingBy: 1_000_000_000)
    return CFAbsoluteTime(seconds) + CFAbsoluteTime(rest) / 1e9
}

/// Whether both are the same object, or data with the same bytes. Loops, sources, timers, observers and sockets are equal only to themselves;
/// a context's `equal` is not called. Thread-safe. See `CFEqual`.
public func CFEqual(_ cf1: AnyObject!, _ cf2: AnyObject!) -> Bool {
    if cf1 === cf2 { return true }
    guard let data1 = cf1 as? CFData, let data2 = cf2 as? CFData else { return false }
    return data1.hasSameBytes(as: data2)
}

/// Whether both modes have the same name. Thread-safe. See `CFEqual`.
public func CFEqual(_ cf1: CFRunLoopMode!, _ cf2: CFRunLoopMode!) -> Bool {
    given(cf1, "first mode").canonical == given(cf2, "second mode").canonical
}

/// A hash of the object's identity; of data, of the bytes. Thread-safe. See `CFHash`.
public func CFHash(_ cf: AnyObject!) -> CFHashCode {
    if let data = cf as? CFData { return data.hash }
    return CFHashCode(bitPattern: ObjectIdentifier(given(cf, "object")).hashValue)
}

/// The number of the object's type, as `CFRunLoopGetTypeID()` and its siblings return it; zero for an object of another type. Thread-safe.
/// See `CFGetTypeID`.
public func CFGetTypeID(_ cf: AnyObject!) -> CFTypeID {
    switch given(cf, "object") {
    case is RunLoop: CFRunLoopGetTypeID()
    case is RunLoop.Source: CFRunLoopSourceGetTypeID()
    case is RunLoop.Observer: CFRunLoopObserverGetTypeID()
    case is RunLoop.Timer: CFRunLoopTimerGetTypeID()
    case is CFFileDescriptor: CFFileDescriptorGetTypeID()
    case is CFSocket: CFSocketGetTypeID()
    case is CFData: CFDataGetTypeID()
    default: 0
    }
}

/// Swift retains objects.
@available(*, unavailable, message: "objects are retained and released by Swift; remove the call")
@discardableResult
public func CFRetain(_ cf: AnyObject!) -> AnyObject! { fatalError("unavailable") }

/// Swift releases objects.
@available(*, unavailable, message: "objects are retained and released by Swift; remove the call")
public func CFRelease(_ cf: AnyObject!) { fatalError("unavailable") }

/// The argument, or a trap that names it. Core Foundation crashes without saying why.
@inline(__always) func given<Value>(_ argument: Value?, _ name: StaticString, function: StaticString = #function) -> Value {
    guard let argument else { preconditionFailure("\(function) was called with nil as its \(name); pass one") }
    return argument
}
