// The errors of a supervisor.

public import EventLoop

extension RunLoop {
    /// Why the service manager's wishes are not understood, or why it cannot be notified.
    public enum SupervisorError: Error, Sendable, Equatable {
        /// The environment variable has a value that the protocol does not allow, or that the library does not support.
        case badVariable(name: String, value: String, reason: String)
        /// A name or a value cannot be part of a notification.
        case badNotification(String)
        /// The named operation failed with this errno.
        case system(operation: String, errno: Int32)
    }
}

extension RunLoop.SupervisorError: CustomStringConvertible {
    /// One line for a person: what failed, with its variable or address, and the system's message where there is one, such as
    /// `notify /run/systemd/notify: Connection refused (ECONNREFUSED)`.
    public var description: String {
        switch self {
        case .badVariable(let name, let value, let reason): "environment variable \(name)=\(quoted(value)): \(reason)"
        case .badNotification(let reason): "the notification cannot be sent: \(reason)"
        case .system(let operation, let errno): "\(operation): \(systemMessage(errno))"
        }
    }
}
