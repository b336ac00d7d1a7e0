// CFRunLoop.h: observers.

public import EventLoop

/// An observer: the package's own `RunLoop.Observer`. See `CFRunLoopObserver`.
// If this is ambiguous: remove the import of CoreFoundation.
public typealias CFRunLoopObserver = RunLoop.Observer

/// What an observer calls. A C function, a global function, or a closure. See `CFRunLoopObserverCallBack`.
public typealias CFRunLoopObserverCallBack = @Sendable (CFRunLoopObserver?, CFRunLoopActivity, UnsafeMutableRawPointer?) -> Void

/// The `info` of an observer's callback. See `CFRunLoopObserverContext`.
// If this is ambiguous: remove the import of CoreFoundation.
public struct CFRunLoopObserverContext {
    /// Zero.
    public var version: CFIndex
    /// Passed to the callback.
    public var info: UnsafeMutableRawPointer?
    /// Called once with `info` when the observer is made. The callback gets its result.
    public var retain: (@convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer?)!
    /// Called once when the observer is invalid and no callback is in progress.
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

extension CFRunLoopObserverContext: ConstantInfoContext {}

/// The number of the type of observers. Thread-safe. See `CFRunLoopObserverGetTypeID`.
public func CFRunLoopObserverGetTypeID() -> CFTypeID { 3 }

/// Makes an observer of `activities`, the raw value of a `CFRunLoopActivity`. If `repeats` is false, it is notified once and is then invalid.
///
/// Observers are notified in ascending `order`, on the loop's thread. The context may be nil. It is copied; its `retain` is called here,
/// on the calling thread. Never returns nil. Thread-safe. See `CFRunLoopObserverCreate`.
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopObserverCreate(
    _ allocator: CFAllocator!, _ activities: CFOptionFlags, _ repeats: Bool, _ order: CFIndex, _ callout: CFRunLoopObserverCallBack!,
    _ context: UnsafeMutablePointer<CFRunLoopObserverContext>!, file: StaticString = #fileID, line: UInt = #line
) -> CFRunLoopObserver! { /* DOES CALLOUT */
    let callout = given(callout, "callout")
    let retained = RetainedContext(context?.pointee ?? CFRunLoopObserverContext())
    let observer = RunLoop.Observer(
        activities: CFRunLoopActivity(rawValue: activities), repeats: repeats, order: order, file: file, line: line
    ) { observer, activity in callout(observer, activity, retained.info) }
    observer.attachment = retained
    return observer
}

/// Makes an observer of `activities`, the raw value of a `CFRunLoopActivity`, that calls a closure. If `repeats` is false, it is notified
/// once and is then invalid.
///
/// The closure is released when the observer is invalid. Never returns nil. Thread-safe. See `CFRunLoopObserverCreateWithHandler`.
@preconcurrency
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopObserverCreateWithHandler(
    _ allocator: CFAllocator!, _ activities: CFOptionFlags, _ repeats: Bool, _ order: CFIndex, file: StaticString = #fileID,
    line: UInt = #line, _ block: (@Sendable (CFRunLoopObserver?, CFRunLoopActivity) -> Void)!
) -> CFRunLoopObserver! {
    let block = given(block, "block")
    return RunLoop.Observer(
        activities: CFRunLoopActivity(rawValue: activities), repeats: repeats, order: order, file: file, line: line
    ) { observer, activity in block(observer, activity) }
}

/// The raw value of the activities that the observer is notified of. Thread-safe. See `CFRunLoopObserverGetActivities`.
public func CFRunLoopObserverGetActivities(_ observer: CFRunLoopObserver!) -> CFOptionFlags {
    given(observer, "observer").activities.rawValue
}

/// False if the observer is notified only once. Thread-safe. See `CFRunLoopObserverDoesRepeat`.
public func CFRunLoopObserverDoesRepeat(_ observer: CFRunLoopObserver!) -> Bool { given(observer, "observer").repeats }

/// The observer's order. Thread-safe. See `CFRunLoopObserverGetOrder`.
public func CFRunLoopObserverGetOrder(_ observer: CFRunLoopObserver!) -> CFIndex { given(observer, "observer").order }

/// Removes the observer from every mode, for good. Its context is released when no callback is in progress. Thread-safe. See
/// `CFRunLoopObserverInvalidate`.
public func CFRunLoopObserverInvalidate(_ observer: CFRunLoopObserver!) { given(observer, "observer").invalidate() }

/// False after the observer was invalidated, or after a non-repeating observer was notified. Thread-safe. See `CFRunLoopObserverIsValid`.
public func CFRunLoopObserverIsValid(_ observer: CFRunLoopObserver!) -> Bool { given(observer, "observer").isValid }

/// Writes the context that the observer was made with to `context`, with the `info` that `retain` returned. Of an observer whose context was
/// released, or that was made with a closure, writes an empty context. Thread-safe. See `CFRunLoopObserverGetContext`.
public func CFRunLoopObserverGetContext(_ observer: CFRunLoopObserver!, _ context: UnsafeMutablePointer<CFRunLoopObserverContext>!) {
    let retained = given(observer, "observer").attachment as? RetainedContext<CFRunLoopObserverContext>
    given(context, "context").pointee = retained?.context ?? CFRunLoopObserverContext()
}

// MARK: Observers in modes

/// Whether the observer is in the mode; for `kCFRunLoopCommonModes`, whether it was added to the common modes. Thread-safe. See
/// `CFRunLoopContainsObserver`.
public func CFRunLoopContainsObserver(_ rl: CFRunLoop!, _ observer: CFRunLoopObserver!, _ mode: CFRunLoopMode!) -> Bool {
    given(rl, "run loop").contains(given(observer, "observer"), forMode: given(mode, "mode").canonical)
}

/// Adds the observer to a mode, or to all common modes. An observer that is invalid or in another loop is not added. Thread-safe. See
/// `CFRunLoopAddObserver`.
public func CFRunLoopAddObserver(_ rl: CFRunLoop!, _ observer: CFRunLoopObserver!, _ mode: CFRunLoopMode!) {
    given(rl, "run loop").add(given(observer, "observer"), forMode: given(mode, "mode").canonical)
}

/// Removes the observer from a mode, or from all common modes. It stays valid. Thread-safe. See `CFRunLoopRemoveObserver`.
public func CFRunLoopRemoveObserver(_ rl: CFRunLoop!, _ observer: CFRunLoopObserver!, _ mode: CFRunLoopMode!) {
    given(rl, "run loop").remove(given(observer, "observer"), forMode: given(mode, "mode").canonical)
}
