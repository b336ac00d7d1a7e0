internal import CPlatform

extension RunLoop {
    /// Sets the function that is called with each warning, one for the process. With nil, nobody is called.
    ///
    /// A debug build of the library starts with a function that prints each warning to standard error, in a line that begins with
    /// `EventLoop: warning:`; a release build with none. The environment variable `EVENTLOOP_WARNINGS` selects the other: 1 prints, 0 is silent.
    ///
    /// The handler is called on the thread that made the mistake, outside all locks of the library, also on several threads at once. It may use the
    /// library. A mistake that it makes itself is not reported. Thread-safe. O(1).
    public static func setWarningHandler(_ handler: (@Sendable (Warning) -> Void)?) {
        LoopGlobals.prepare()
        Warnings.setHandler(handler)
    }

    /// How serious a message of libevent's is.
    public enum LibeventSeverity: Int32, Sendable {
        /// `EVENT_LOG_DEBUG`: only from a libevent that was built with debug messages.
        case debug
        /// `EVENT_LOG_MSG` and `EVENT_LOG_WARN`.
        case message, warning
        /// `EVENT_LOG_ERR`: the process ends after a fatal one.
        case error
    }

    /// Hands libevent's own messages, which it would write to standard error, to `handler`; nil drops them, as at the start.
    ///
    /// One for the process, called on the thread that called libevent, outside our locks, perhaps in a wait: it must not run a loop. Thread-safe.
    public static func setLibeventLogHandler(_ handler: (@Sendable (_ severity: LibeventSeverity, _ message: String) -> Void)?) {
        LoopGlobals.prepare()
        guard let handler else { return LibeventRuntime.setLogHandler(nil) }
        LibeventRuntime.setLogHandler { severity, message in
            let severity = LibeventSeverity(rawValue: severity) ?? .message
            // A stream changes its events under its lock. A thread that carries out changes of its loop makes no callout until they are done.
            guard cplatform_current_loop() != nil, LoopLifetime.withCurrent({ $0.isCurrent && $0.owned.changeBatch.isApplying }) else {
                return handler(severity, message)
            }
            LoopLifetime.unsafeCurrent.finishLater(.call(LaterCall { handler(severity, message) }))
        }
    }
}
