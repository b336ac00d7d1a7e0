internal import CLibevent
internal import CPlatform
internal import EventLoopLibC

/// What libevent keeps for the whole process: its log and its fatal callback.
package enum LibeventRuntime {
    private static let logHandler = LoopLock<LogHandler?>(nil)
    /// A bare closure in the lock would be wrapped once more at each access.
    private struct LogHandler: Sendable { let call: @Sendable (_ severity: Int32, _ message: String) -> Void }
    /// The last warning or error.
    private static let lastLine = LoopLock("it logged nothing")

    private static let prepared: Bool = {
        // event.h: event_set_log_callback "Override libevent's log messages". Its default writes to standard error, which is not a library's.
        event_set_log_callback { severity, message in
            guard let message else { return }
            let code = errno  // libevent's caller reads it next
            defer { errno = code }
            let line = String(cString: message)
            if severity >= EVENT_LOG_WARN { LibeventRuntime.lastLine.withLock { $0 = line } }
            LibeventRuntime.logHandler.withLock { $0 }?.call(severity, line)
        }
        cplatform_on_libevent_failure { code in
            preconditionFailure("libevent gave up with code \(code): \(LibeventRuntime.lastLine.withLock { $0 })")
        }
        // event.h: "the callback should not return": libevent has found its own state broken. A shortage while a base is made is survived.
        event_set_fatal_callback(cplatform_libevent_gave_up)
        return true
    }()

    /// Before the first base is made. Thread-safe.
    static func prepare() { _ = prepared }

    static func hold() {
        prepare()
        _ = logHandler.lockValue()
        _ = lastLine.lockValue()
        cplatform_hold_room_checks()
    }

    static func release() {
        cplatform_release_room_checks()
        lastLine.unlock()
        logHandler.unlock()
    }

    /// Reports a warning of ours where libevent's own go.
    package static func warn(_ message: String) { logHandler.withLock { $0 }?.call(Int32(EVENT_LOG_WARN), message) }

    static func setLogHandler(_ handler: (@Sendable (Int32, String) -> Void)?) {
        prepare()
        _ = logHandler.exchange(handler.map(LogHandler.init))  // released outside the lock: what the handler holds is the user's
    }
}
