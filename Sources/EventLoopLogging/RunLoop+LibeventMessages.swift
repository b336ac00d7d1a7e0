// libevent's own messages for swift-log.

#if Logging

public import EventLoop
public import Logging

extension RunLoop {
    /// Logs libevent's own messages, and those of draining threads, which come the same way. Replaces the handler that
    /// `setLibeventLogHandler` has set; that call with nil ends it. Thread-safe.
    ///
    /// The logger is called on the thread that libevent was called on, perhaps inside a wait.
    public static func logLibeventMessages(to logger: Logger) {
        setLibeventLogHandler { severity, message in
            logger.log(level: severity.level, "\(message)", metadata: ["library": "libevent"])
        }
    }
}

extension RunLoop.LibeventSeverity {
    fileprivate var level: Logger.Level {
        switch self {
        case .debug: .debug
        case .message: .info
        case .warning: .warning
        case .error: .error
        }
    }
}

#endif
