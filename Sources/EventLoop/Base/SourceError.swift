internal import CPlatform
import EventLoopLibC

extension RunLoop {
    /// Why a source could not be made, or why it failed later.
    public enum SourceError: Error, Sendable, Equatable {
        /// The descriptor is not open.
        case badDescriptor(Int32)
        /// The descriptor is open, but the kernel cannot watch its file (a regular file, a directory).
        case notPollable(Int32)
        /// The signal number is invalid, or the signal cannot be handled.
        case badSignal(Int32)
        /// The process is not a child of this process, or other code has already reaped it.
        case badProcess(Int32)
        /// The address cannot be used: its host is not numeric, or its path is too long.
        case badAddress(String)
        /// The loop has ended, so nothing can be added to it.
        case loopEnded
        /// The named operation failed with this errno.
        case system(operation: String, errno: Int32)
    }
}

extension RunLoop.SourceError: CustomStringConvertible {
    /// Whether the same call may succeed later, when the process or the system has descriptors or memory again.
    package var isShortage: Bool {
        guard case .system(_, let errno) = self else { return false }
        return [EMFILE, ENFILE, ENOMEM, ENOSPC, ENOBUFS, EAGAIN].contains(errno)
    }

    /// The kernel's number for it.
    package var errno: Int32 {
        switch self {
        case .badDescriptor: EBADF
        case .notPollable: EPERM
        case .badSignal, .badAddress: EINVAL
        case .badProcess: ECHILD
        case .loopEnded: ECANCELED
        case .system(_, let errno): errno
        }
    }

    /// One line for a person: what failed, where, and the system's message, such as `bind 127.0.0.1:80: Permission denied (EACCES)`.
    public var description: String {
        switch self {
        case .badDescriptor(let descriptor): "descriptor \(descriptor) is not open: \(systemMessage(EBADF))"
        case .notPollable(let descriptor): "descriptor \(descriptor) is a file that the kernel cannot watch: \(systemMessage(EPERM))"
        case .badSignal(let signal): "signal \(signal) cannot be handled: \(systemMessage(EINVAL))"
        case .badProcess(let process): "process \(process) is no child of this process, or was reaped: \(systemMessage(ECHILD))"
        case .badAddress(let address): "\(quoted(address)) is no address of a socket: its host is not numeric, or its path is too long"
        case .loopEnded: "the run loop has ended"
        case .system(let operation, let errno): "\(operation): \(systemMessage(errno))"
        }
    }
}

/// The system's message and the symbol: "Permission denied (EACCES)". Thread-safe.
package func systemMessage(_ errno: Int32) -> String {
    let message = withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
        // SAFETY: the buffer lives as long as this call, which fills it up to a zero byte.
        cplatform_error_message(errno, buffer.baseAddress!, 256)
        return String(cString: buffer.baseAddress!)
    }
    guard let symbol = cplatform_error_name(errno) else { return "\(message) (errno \(errno))" }
    return "\(message) (\(String(cString: symbol)))"
}

/// A user's text in a message, in quotation marks and on one line.
package func quoted(_ text: String) -> String { String(reflecting: text) }
