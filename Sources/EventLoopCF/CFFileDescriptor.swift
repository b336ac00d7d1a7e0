// CFFileDescriptor.h, which Core Foundation for Linux lacks: callbacks for a descriptor that is ready.
//
// Lifecycle of a CFFileDescriptor: its source retains it, and it refers to its source weakly, so one whose source nobody uses is released.
// `info` is released by `CFFileDescriptorInvalidate`, or with the object. The native descriptor is closed, if that was asked for, with the
// last reference to its `NativeDescriptor`: the object has one while it is valid, and each of its sources until no loop watches it.
// If other code has closed it, it is not closed again, and the object is invalid as soon as a loop finds out.

internal import CPlatform
public import EventLoop
import EventLoopLibC
internal import Synchronization

/// A descriptor of the system. See `CFFileDescriptorNativeDescriptor`.
public typealias CFFileDescriptorNativeDescriptor = Int32

/// What a descriptor calls when it is ready, with the callback types that it is ready for. A C function, a global function, or a closure.
/// See `CFFileDescriptorCallBack`.
public typealias CFFileDescriptorCallBack = @Sendable (CFFileDescriptor?, CFOptionFlags, UnsafeMutableRawPointer?) -> Void

/// The descriptor can be read. See `kCFFileDescriptorReadCallBack`.
public let kCFFileDescriptorReadCallBack: CFOptionFlags = 1 << 0
/// The descriptor can be written to. See `kCFFileDescriptorWriteCallBack`.
public let kCFFileDescriptorWriteCallBack: CFOptionFlags = 1 << 1

/// The `info` of a descriptor's callback. See `CFFileDescriptorContext`.
public struct CFFileDescriptorContext {
    /// Zero.
    public var version: CFIndex
    /// Passed to the callback.
    public var info: UnsafeMutableRawPointer?
    /// Called once with `info` when the object is made. The callback gets its result.
    public var retain: (@convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?)!
    /// Called once when the object is invalid and no callback is in progress.
    public var release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
    /// Never called.
    public var copyDescription: (@Sendable (UnsafeMutableRawPointer?) -> String?)!

    /// Without `info` and functions.
    public init() { self.init(version: 0, info: nil, retain: nil, release: nil, copyDescription: nil) }

    /// Every field, in the order of the C structure.
    public init(
        version: CFIndex, info: UnsafeMutableRawPointer!, retain: (@convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?)!,
        release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!, copyDescription: (@Sendable (UnsafeMutableRawPointer?) -> String?)!
    ) {
        (self.version, self.info, self.retain, self.release) = (version, info, retain, release)
        self.copyDescription = copyDescription
    }
}

extension CFFileDescriptorContext: InfoContext {
    func retainedInfo() -> UnsafeMutableRawPointer? { /* DOES CALLOUT */ retain == nil ? info : retain(info) }
    func releaseInfo() { /* DOES CALLOUT */ release?(info) }
}

/// Closes the descriptor, if that was asked for, when nobody uses it any more.
private final class NativeDescriptor: Sendable {
    let number: CFFileDescriptorNativeDescriptor
    private let closes: Atomic<Bool>

    init(_ number: CFFileDescriptorNativeDescriptor, closes: Bool) {
        self.number = number
        self.closes = Atomic(closes)
    }

    deinit { if closes.load(ordering: .acquiring) { cplatform_close(number) } }

    /// Other code has closed the descriptor, and the number may be another file's.
    func leaveAlone() { closes.store(false, ordering: .releasing) }
}

/// Calls back when a descriptor is ready. Each callback disables itself, and is enabled again with `CFFileDescriptorEnableCallBacks`.
/// Thread-safe. See `CFFileDescriptor`.
public final class CFFileDescriptor: Sendable {
    fileprivate struct State {
        /// Nil once the object is invalid, as `context`.
        var native: NativeDescriptor?
        var context: RetainedContext<CFFileDescriptorContext>?
        var enabled: RunLoop.DescriptorSource.Events = []
        weak var source: RunLoop.DescriptorSource?
    }

    private let callout: CFFileDescriptorCallBack
    fileprivate let state: LoopLock<State>

    fileprivate init(
        _ native: NativeDescriptor, _ callout: @escaping CFFileDescriptorCallBack, _ context: RetainedContext<CFFileDescriptorContext>
    ) {
        self.callout = callout
        state = LoopLock(State(native: native, context: context))
    }

    deinit { /* DOES CALLOUT */ invalidate() }

    fileprivate func invalidate() { /* DOES CALLOUT */
        // `released` leaves the lock, because a context's `release` is the user's.
        let ended = state.withLockIfOwn { state in
            defer { (state.native, state.context, state.source, state.enabled) = (nil, nil, nil, []) }
            return (released: (state.native, state.context), source: state.source)
        }
        ended?.source?.invalidate()
    }

    /// Changes which callbacks are enabled, and has the loop watch for them. `body` gets the context, which is nil once the object is invalid.
    fileprivate func change<R>(
        _ body: (inout RunLoop.DescriptorSource.Events, RetainedContext<CFFileDescriptorContext>?) -> R
    ) -> R {
        let (result, source) = state.withLock { state -> (R, RunLoop.DescriptorSource?) in
            let (result, source) = (body(&state.enabled, state.context), state.source)
            source?.setEventsWithoutCallout(state.enabled)
            return (result, source)
        }
        // Leaves the lock, because this may be the last reference.
        withExtendedLifetime(source) {}
        return result
    }

    /// Disables the callbacks that `ready` is for, and calls back. Nothing else is called before: a thread that ended there would have disabled them
    /// for nothing.
    fileprivate func serve(_ ready: RunLoop.DescriptorSource.Events) { /* DOES CALLOUT */
        let (fired, context) = change { enabled, context in
            let fired = enabled.intersection(ready)
            enabled.subtract(fired)
            return (fired, context)
        }
        guard !fired.isEmpty, let context else { return }
        callout(self, CFOptionFlags(fired.rawValue), context.info)
    }

    /// The object's only source, made when it is first asked for.
    fileprivate func makeSource(_ order: CFIndex, _ file: StaticString, _ line: UInt) -> RunLoop.DescriptorSource? {
        state.withLock { state in
            guard let native = state.native else { return nil }
            if let source = state.source, source.isValid { return source }
            let made = try? RunLoop.DescriptorSource(descriptor: native.number, events: state.enabled, file: file, line: line) { _, ready in
                self.serve(ready)
            }
            made?.attachment = OrderAttachment(order)
            made?.onInvalidation { [weak self] source in
                if source.failure == .badDescriptor(native.number) {
                    native.leaveAlone()
                    self?.invalidate()
                }
                withExtendedLifetime(native) {}
            }
            state.source = made
            return made
        }
    }
}

extension RunLoop.DescriptorSource.Events {
    /// Those of the callback types that exist.
    fileprivate init(_ callBackTypes: CFOptionFlags) {
        self.init(rawValue: UInt8(callBackTypes & (kCFFileDescriptorReadCallBack | kCFFileDescriptorWriteCallBack)))
    }
}

/// The number of the type. Thread-safe. See `CFFileDescriptorGetTypeID`.
public func CFFileDescriptorGetTypeID() -> CFTypeID { 5 }

/// Makes an object for a descriptor, without enabled callbacks. Nil if the descriptor is not open.
///
/// With `closeOnInvalidate`, the object closes the descriptor when it has been invalidated or released and the loop has stopped watching.
/// The context may be nil. It is copied; its `retain` is called here, on the calling thread. Thread-safe. See `CFFileDescriptorCreate`.
public func CFFileDescriptorCreate(
    _ allocator: CFAllocator!, _ fd: CFFileDescriptorNativeDescriptor, _ closeOnInvalidate: Bool, _ callout: CFFileDescriptorCallBack!,
    _ context: UnsafePointer<CFFileDescriptorContext>!
) -> CFFileDescriptor! { /* DOES CALLOUT */
    let callout = given(callout, "callout")
    if fcntl(fd, F_GETFD) < 0 { return nil }
    return CFFileDescriptor(
        NativeDescriptor(fd, closes: closeOnInvalidate), callout, RetainedContext(context?.pointee ?? CFFileDescriptorContext()))
}

/// The descriptor; -1 if the object is invalid. Thread-safe. See `CFFileDescriptorGetNativeDescriptor`.
public func CFFileDescriptorGetNativeDescriptor(_ f: CFFileDescriptor!) -> CFFileDescriptorNativeDescriptor {
    given(f, "file descriptor").state.withLock { $0.native?.number } ?? -1
}

/// Writes the context that the object was made with to `context`, with the `info` that `retain` returned; an empty context if the object is
/// invalid. Thread-safe. See `CFFileDescriptorGetContext`.
public func CFFileDescriptorGetContext(_ f: CFFileDescriptor!, _ context: UnsafeMutablePointer<CFFileDescriptorContext>!) {
    let retained = given(f, "file descriptor").state.withLock { $0.context }
    given(context, "context").pointee = retained?.context ?? CFFileDescriptorContext()
}

/// Enables callbacks, each for one call. Reaches a sleeping loop at once. Does nothing to an invalid object. Thread-safe. See
/// `CFFileDescriptorEnableCallBacks`.
public func CFFileDescriptorEnableCallBacks(_ f: CFFileDescriptor!, _ callBackTypes: CFOptionFlags) {
    given(f, "file descriptor").change { if $1 != nil { $0.formUnion(.init(callBackTypes)) } }
}

/// Disables callbacks. One in progress on another thread is not waited for. Thread-safe. See `CFFileDescriptorDisableCallBacks`.
public func CFFileDescriptorDisableCallBacks(_ f: CFFileDescriptor!, _ callBackTypes: CFOptionFlags) {
    given(f, "file descriptor").change { enabled, _ in enabled.subtract(.init(callBackTypes)) }
}

/// Ends the object and its source, for good. `info` is released here or, if a callback is in progress, after it. Thread-safe. See
/// `CFFileDescriptorInvalidate`.
public func CFFileDescriptorInvalidate(_ f: CFFileDescriptor!) { /* DOES CALLOUT */ given(f, "file descriptor").invalidate() }

/// False after the object was invalidated. Thread-safe. See `CFFileDescriptorIsValid`.
public func CFFileDescriptorIsValid(_ f: CFFileDescriptor!) -> Bool { given(f, "file descriptor").state.withLock { $0.context != nil } }

/// The source of the object, which retains it: the same one while it is valid and in use. Nil if the object is invalid, if the descriptor was closed,
/// or if the kernel cannot watch it (a regular file, a directory).
///
/// Add it to a loop with `CFRunLoopAddSource`. `order` reads back with `CFRunLoopSourceGetOrder`, and has no effect: descriptors take
/// turns. Thread-safe. See `CFFileDescriptorCreateRunLoopSource`.
public func CFFileDescriptorCreateRunLoopSource(
    _ allocator: CFAllocator!, _ f: CFFileDescriptor!, _ order: CFIndex, file: StaticString = #fileID, line: UInt = #line
) -> CFRunLoopSource! {
    given(f, "file descriptor").makeSource(order, file, line)
}
