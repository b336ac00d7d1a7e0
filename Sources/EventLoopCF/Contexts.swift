// What the contexts of sources, timers, observers and descriptors have in common: `info`, and the functions that retain and release it.
//
// Lifecycle of `info`: `CFRunLoopSourceCreate` and its siblings call the context's `retain` once, with the `info` that the caller passed, and
// pass its result to the callbacks. `release` is called once with it, by the deinit of `RetainedContext`. The item's handlers hold the
// `RetainedContext`, so that happens when the item is invalidated and no callback is in progress, on the thread that ends the last
// use. A source's attachment holds it too, until the source is released, because CFRunLoopSourceGetContext works on an invalid source.

/// A context whose `info` can be retained.
protocol InfoContext {
    var info: UnsafeMutableRawPointer? { get set }
    /// `info` as the callbacks are to get it.
    func retainedInfo() -> UnsafeMutableRawPointer? /* DOES CALLOUT */
    func releaseInfo() /* DOES CALLOUT */
}

/// The functions of most contexts, which take `info` as a pointer to constant memory.
protocol ConstantInfoContext: InfoContext {
    var retain: (@convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer?)! { get }
    var release: (@convention(c) (UnsafeRawPointer?) -> Void)! { get }
}

extension ConstantInfoContext {
    func retainedInfo() -> UnsafeMutableRawPointer? { /* DOES CALLOUT */
        guard let retain else { return info }
        return UnsafeMutableRawPointer(mutating: retain(info))
    }

    func releaseInfo() { /* DOES CALLOUT */ release?(info) }
}

/// A context with a retained `info`, which it releases when it is released itself.
final class RetainedContext<Context: InfoContext>: @unchecked Sendable {
    // SAFETY: a constant. What `info` points to may be used by any thread: a context's functions are documented to be called on the loop's
    // thread, and on the threads that add, remove, invalidate and release the item.
    let context: Context

    init(_ passed: Context) { /* DOES CALLOUT */
        var context = passed
        context.info = passed.retainedInfo()
        self.context = context
    }

    deinit { /* DOES CALLOUT */ context.releaseInfo() }

    var info: UnsafeMutableRawPointer? { context.info }
}
