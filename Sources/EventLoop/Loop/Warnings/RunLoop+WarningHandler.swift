// The handler that warnings of likely mistakes are passed to.

extension RunLoop {
    /// Sets the function that is called with each warning, one for the process. With nil, nobody is called.
    ///
    /// A debug build of the library starts with a function that prints each warning to standard error, in a line that begins with
    /// `EventLoop: warning:`. A release build starts with none. The environment variable `EVENTLOOP_WARNINGS` selects the other: 1 prints,
    /// 0 is silent. A handler takes the place of the printing.
    ///
    /// The handler is called on the thread that made the mistake, outside all locks of the library, also on several threads at once. It may
    /// use the library. A mistake that it makes itself is not reported. Thread-safe. O(1).
    public static func setWarningHandler(_ handler: (@Sendable (Warning) -> Void)?) {
        LoopForks.prepare()
        Warnings.setHandler(handler)
    }
}
