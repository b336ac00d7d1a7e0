// CFRunLoop.h: sources of version 0, which threads signal by hand.

public import EventLoop

/// An input source: the package's own `RunLoop.Source`. See `CFRunLoopSource`.
///
/// Every source of the package may be passed to these functions, such as a `RunLoop.DescriptorSource` or a `RunLoop.SignalSource`.
// If this is ambiguous: remove the import of CoreFoundation.
public typealias CFRunLoopSource = RunLoop.Source

/// The functions of a source, and the `info` that they get. See `CFRunLoopSourceContext`.
// If this is ambiguous: remove the import of CoreFoundation.
public struct CFRunLoopSourceContext {
    /// Zero. Version 1 needs Mach ports.
    public var version: CFIndex
    /// Passed to the functions.
    public var info: UnsafeMutableRawPointer?
    /// Called once with `info` when the source is made. The functions get its result.
    public var retain: (@convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer?)!
    /// Called once when the source is released.
    public var release: (@convention(c) (UnsafeRawPointer?) -> Void)!
    /// Never called.
    public var copyDescription: (@Sendable (UnsafeRawPointer?) -> String?)!
    /// Never called: two sources are the same only if they are one object.
    public var equal: (@convention(c) (UnsafeRawPointer?, UnsafeRawPointer?) -> Bool)!
    /// Never called, as `equal`.
    public var hash: (@convention(c) (UnsafeRawPointer?) -> CFHashCode)!
    /// Called for each mode that the source is added to, on the thread that adds it.
    public var schedule: (@Sendable (UnsafeMutableRawPointer?, CFRunLoop?, CFRunLoopMode?) -> Void)!
    /// Called for each mode that the source is removed from, on the thread that removes or invalidates it.
    public var cancel: (@Sendable (UnsafeMutableRawPointer?, CFRunLoop?, CFRunLoopMode?) -> Void)!
    /// Called on the loop's thread after the source was signaled.
    public var perform: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!

    /// Version 0 without functions.
    // If this is ambiguous: remove the import of CoreFoundation.
    public init() {
        self.init(
            version: 0, info: nil, retain: nil, release: nil, copyDescription: nil, equal: nil, hash: nil, schedule: nil, cancel: nil,
            perform: nil)
    }

    /// Every field, in the order of the C structure.
    public init(
        version: CFIndex, info: UnsafeMutableRawPointer!, retain: (@convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer?)!,
        release: (@convention(c) (UnsafeRawPointer?) -> Void)!, copyDescription: (@Sendable (UnsafeRawPointer?) -> String?)!,
        equal: (@convention(c) (UnsafeRawPointer?, UnsafeRawPointer?) -> Bool)!, hash: (@convention(c) (UnsafeRawPointer?) -> CFHashCode)!,
        schedule: (@Sendable (UnsafeMutableRawPointer?, CFRunLoop?, CFRunLoopMode?) -> Void)!,
        cancel: (@Sendable (UnsafeMutableRawPointer?, CFRunLoop?, CFRunLoopMode?) -> Void)!,
        perform: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
    ) {
        (self.version, self.info, self.retain, self.release) = (version, info, retain, release)
        (self.copyDescription, self.equal, self.hash) = (copyDescription, equal, hash)
        (self.schedule, self.cancel, self.perform) = (schedule, cancel, perform)
    }
}

extension CFRunLoopSourceContext: ConstantInfoContext {}

/// Sources of version 1 are ready when a Mach port is.
@available(
    *, unavailable,
    message: "there are no Mach ports; watch a descriptor with CFFileDescriptorCreateRunLoopSource or RunLoop.DescriptorSource"
)
public struct CFRunLoopSourceContext1 {}

/// What a source that was made by a function of this module has beside the package's source.
protocol SourceAttachment: AnyObject, Sendable {
    var order: CFIndex { get }
    var sourceContext: CFRunLoopSourceContext { get }
}

/// Of a source whose object, a file descriptor or a socket, has the context.
final class OrderAttachment: SourceAttachment {
    let order: CFIndex
    init(_ order: CFIndex) { self.order = order }
    var sourceContext: CFRunLoopSourceContext { CFRunLoopSourceContext() }
}

/// Of a source of version 0.
private final class CustomSourceAttachment: SourceAttachment {
    let order: CFIndex
    private let retained: RetainedContext<CFRunLoopSourceContext>

    init(_ order: CFIndex, _ retained: RetainedContext<CFRunLoopSourceContext>) { (self.order, self.retained) = (order, retained) }

    var sourceContext: CFRunLoopSourceContext { retained.context }
}

/// The number of the type of sources. Thread-safe. See `CFRunLoopSourceGetTypeID`.
public func CFRunLoopSourceGetTypeID() -> CFTypeID { 2 }

/// Makes a source of version 0, which is performed after `CFRunLoopSourceSignal(_:)`.
///
/// Sources are performed in ascending `order`. The context is copied; its `retain` is called here, on the calling thread. A context of
/// another version is a precondition failure. Never returns nil. Thread-safe. See `CFRunLoopSourceCreate`.
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopSourceCreate(
    _ allocator: CFAllocator!, _ order: CFIndex, _ context: UnsafeMutablePointer<CFRunLoopSourceContext>!,
    file: StaticString = #fileID, line: UInt = #line
) -> CFRunLoopSource! { /* DOES CALLOUT */
    let passed = given(context, "context").pointee
    precondition(
        passed.version == 0,
        "the source's context has version \(passed.version); only version 0 exists here: watch a descriptor with RunLoop.DescriptorSource")
    let retained = RetainedContext(passed)
    var schedule: (@Sendable (RunLoop, RunLoop.Mode) -> Void)?
    var cancel: (@Sendable (RunLoop, RunLoop.Mode) -> Void)?
    if let routine = passed.schedule { schedule = { loop, mode in routine(retained.info, loop, mode) } }
    if let routine = passed.cancel { cancel = { loop, mode in routine(retained.info, loop, mode) } }
    let source = RunLoop.CustomSource(order: order, file: file, line: line, schedule: schedule, cancel: cancel) {
        retained.context.perform?(retained.info)
    }
    source.attachment = CustomSourceAttachment(order, retained)
    return source
}

/// The source's order; zero for a source of the package that has none. Thread-safe. See `CFRunLoopSourceGetOrder`.
public func CFRunLoopSourceGetOrder(_ source: CFRunLoopSource!) -> CFIndex {
    let source = given(source, "source")
    return (source.attachment as? any SourceAttachment)?.order ?? (source as? RunLoop.CustomSource)?.order ?? 0
}

/// Removes the source from every mode of every loop, for good, and calls `cancel` for each of them, on the calling thread. Does not wait for
/// a `perform` in progress. Thread-safe. See `CFRunLoopSourceInvalidate`.
public func CFRunLoopSourceInvalidate(_ source: CFRunLoopSource!) { /* DOES CALLOUT */ given(source, "source").invalidate() }

/// False after the source was invalidated. Thread-safe. See `CFRunLoopSourceIsValid`.
public func CFRunLoopSourceIsValid(_ source: CFRunLoopSource!) -> Bool { given(source, "source").isValid }

/// Writes the context that the source was made with to `context`, with the `info` that `retain` returned. Of a source that
/// `CFRunLoopSourceCreate` did not make, writes an empty context. Thread-safe. See `CFRunLoopSourceGetContext`.
public func CFRunLoopSourceGetContext(_ source: CFRunLoopSource!, _ context: UnsafeMutablePointer<CFRunLoopSourceContext>!) {
    given(context, "context").pointee =
        (given(source, "source").attachment as? any SourceAttachment)?.sourceContext ?? CFRunLoopSourceContext()
}

/// Marks the source as ready. Does not wake the loop: call `CFRunLoopWakeUp(_:)`. Does nothing to a source that the kernel makes ready.
/// Thread-safe. See `CFRunLoopSourceSignal`.
public func CFRunLoopSourceSignal(_ source: CFRunLoopSource!) { (given(source, "source") as? RunLoop.CustomSource)?.signal() }

// MARK: Sources in modes

/// Whether the source is in the mode; for `kCFRunLoopCommonModes`, whether it was added to the common modes. Thread-safe. See
/// `CFRunLoopContainsSource`.
public func CFRunLoopContainsSource(_ rl: CFRunLoop!, _ source: CFRunLoopSource!, _ mode: CFRunLoopMode!) -> Bool {
    given(rl, "run loop").contains(given(source, "source"), forMode: given(mode, "mode").canonical)
}

/// Adds the source to a mode, or to all common modes, and calls its `schedule` on the calling thread. An invalid source is not added.
///
/// A sleeping loop is woken. Thread-safe. See `CFRunLoopAddSource`.
public func CFRunLoopAddSource(_ rl: CFRunLoop!, _ source: CFRunLoopSource!, _ mode: CFRunLoopMode!) { /* DOES CALLOUT */
    given(rl, "run loop").add(given(source, "source"), forMode: given(mode, "mode").canonical)
}

/// Removes the source from a mode, or from all common modes, and calls its `cancel` on the calling thread. The source stays valid, and keeps
/// its signal. Thread-safe. See `CFRunLoopRemoveSource`.
public func CFRunLoopRemoveSource(_ rl: CFRunLoop!, _ source: CFRunLoopSource!, _ mode: CFRunLoopMode!) { /* DOES CALLOUT */
    given(rl, "run loop").remove(given(source, "source"), forMode: given(mode, "mode").canonical)
}
