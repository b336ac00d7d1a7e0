// CFSocket.h: the types and constants.

/// A socket of the system: its descriptor. See `CFSocketNativeHandle`.
public typealias CFSocketNativeHandle = Int32

/// What a call that binds, connects or sends returns. See `CFSocketError`.
// If this is ambiguous: remove the import of CoreFoundation.
#if hasAttribute(nonexhaustive)
@nonexhaustive(warn)
#endif
public enum CFSocketError: CFIndex, Sendable {
    /// The call did what it is for.
    case success = 0
    /// The system refused, or the socket is invalid.
    case error = -1
    /// The time passed.
    case timeout = -2
}

/// What a socket calls back for. Read, accept and data exclude each other: they are the values of the two lowest bits. See
/// `CFSocketCallBackType`.
// If this is ambiguous: remove the import of CoreFoundation.
public struct CFSocketCallBackType: OptionSet, Sendable {
    /// Core Foundation's bits.
    public let rawValue: CFOptionFlags
    /// The types with these bits.
    public init(rawValue: CFOptionFlags) { self.rawValue = rawValue }

    /// The socket can be read, or a connection can be accepted. The callback does that.
    public static let readCallBack = CFSocketCallBackType(rawValue: 1)
    /// A connection was accepted. The callback's data points to its `CFSocketNativeHandle`, which belongs to the callback.
    public static let acceptCallBack = CFSocketCallBackType(rawValue: 2)
    /// Data were received. The callback's data is a `CFData`, which is empty at the end of the input.
    public static let dataCallBack = CFSocketCallBackType(rawValue: 3)
    /// A connection attempt has ended. The callback's data is nil, or points to the `Int32` of the error.
    public static let connectCallBack = CFSocketCallBackType(rawValue: 4)
    /// The socket can be written to.
    public static let writeCallBack = CFSocketCallBackType(rawValue: 8)
}

/// Read callbacks are enabled again after each. On for a socket with read callbacks. See `kCFSocketAutomaticallyReenableReadCallBack`.
public let kCFSocketAutomaticallyReenableReadCallBack: CFOptionFlags = 1
/// The same for accept callbacks. See `kCFSocketAutomaticallyReenableAcceptCallBack`.
public let kCFSocketAutomaticallyReenableAcceptCallBack: CFOptionFlags = 2
/// The same for data callbacks. See `kCFSocketAutomaticallyReenableDataCallBack`.
public let kCFSocketAutomaticallyReenableDataCallBack: CFOptionFlags = 3
/// Write callbacks are enabled again after each. Off at first. See `kCFSocketAutomaticallyReenableWriteCallBack`.
public let kCFSocketAutomaticallyReenableWriteCallBack: CFOptionFlags = 8
/// A connect callback does not take the error from the socket, and does not report it. Off at first. See `kCFSocketLeaveErrors`.
public let kCFSocketLeaveErrors: CFOptionFlags = 64
/// The socket is closed after it was invalidated. On at first. See `kCFSocketCloseOnInvalidate`.
public let kCFSocketCloseOnInvalidate: CFOptionFlags = 128

/// What a socket calls: the socket, one type, an address, data, and `info`. A C function, a global function, or a closure.
///
/// The address is the peer's for the types accept and data, and nil otherwise. Address and data are valid during the call. See
/// `CFSocketCallBack`.
public typealias CFSocketCallBack =
    @Sendable (CFSocket?, CFSocketCallBackType, CFData?, UnsafeRawPointer?, UnsafeMutableRawPointer?) -> Void

/// What to create, and where to bind or to connect it. See `CFSocketSignature`.
// If this is ambiguous: remove the import of CoreFoundation.
public struct CFSocketSignature {
    /// PF_INET, for example, which is the default for zero.
    public var protocolFamily: Int32
    /// SOCK_STREAM, for example, which is the default for zero.
    public var socketType: Int32
    /// IPPROTO_TCP, for example; zero is the default of family and type.
    public var `protocol`: Int32
    /// A `struct sockaddr`. The functions that take a signature do not release it.
    public var address: Unmanaged<CFData>!

    /// Zeros, without an address.
    // If this is ambiguous: remove the import of CoreFoundation.
    public init() { self.init(protocolFamily: 0, socketType: 0, protocol: 0, address: nil) }

    /// Every field, in the order of the C structure.
    public init(protocolFamily: Int32, socketType: Int32, protocol: Int32, address: Unmanaged<CFData>!) {
        (self.protocolFamily, self.socketType, self.protocol, self.address) = (protocolFamily, socketType, `protocol`, address)
    }
}

/// The `info` of a socket's callback. See `CFSocketContext`.
// If this is ambiguous: remove the import of CoreFoundation.
public struct CFSocketContext {
    /// Zero.
    public var version: CFIndex
    /// Passed to the callback.
    public var info: UnsafeMutableRawPointer?
    /// Called once with `info` when the object is made. The callback gets its result.
    public var retain: (@convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer?)!
    /// Called once when the object is invalid and no callback is in progress.
    public var release: (@convention(c) (UnsafeRawPointer?) -> Void)!
    /// Never called.
    public var copyDescription: (@Sendable (UnsafeRawPointer?) -> String?)!

    /// Without `info` and functions.
    // If this is ambiguous: remove the import of CoreFoundation.
    public init() { self.init(version: 0, info: nil, retain: nil, release: nil, copyDescription: nil) }

    /// Every field, in the order of the C structure.
    public init(
        version: CFIndex, info: UnsafeMutableRawPointer!, retain: (@convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer?)!,
        release: (@convention(c) (UnsafeRawPointer?) -> Void)!, copyDescription: (@Sendable (UnsafeRawPointer?) -> String?)!
    ) {
        (self.version, self.info, self.retain, self.release) = (version, info, retain, release)
        self.copyDescription = copyDescription
    }
}

extension CFSocketContext: ConstantInfoContext {}
