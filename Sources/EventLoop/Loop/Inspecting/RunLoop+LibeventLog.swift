// Where libevent's own messages go.

extension RunLoop {
    /// How serious a message of libevent's is.
    public enum LibeventSeverity: Int32, Sendable {
        /// `EVENT_LOG_DEBUG`: only from a libevent that was built with debug messages.
        case debug
        /// `EVENT_LOG_MSG`.
        case message
        /// `EVENT_LOG_WARN`.
        case warning
        /// `EVENT_LOG_ERR`: the process ends after a fatal one.
        case error
    }

    /// Hands libevent's own messages, which it would write to standard error, to `handler`; nil drops them, as at the start.
    ///
    /// One handler for the process. It is called on the thread that libevent was called on, perhaps inside a wait: it must not run a loop.
    /// Thread-safe.
    public static func setLibeventLogHandler(_ handler: (@Sendable (_ severity: LibeventSeverity, _ message: String) -> Void)?) {
        LoopForks.prepare()
        guard let handler else { return LibeventRuntime.setLogHandler(nil) }
        LibeventRuntime.setLogHandler { severity, message in
            handler(LibeventSeverity(rawValue: severity) ?? .message, message)
        }
    }
}
