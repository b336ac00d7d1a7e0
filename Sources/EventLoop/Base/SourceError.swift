// What can be wrong with a source.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RunLoop {
    /// Why a source could not be made, or became invalid by itself.
    public enum SourceError: Error, Sendable, Equatable {
        /// Not an open descriptor.
        case badDescriptor(Int32)
        /// Open, but not something that becomes ready (a regular file, a directory).
        case notPollable(Int32)
        /// Not a signal that can be handled.
        case badSignal(Int32)
        /// Not a child process, or one whose exit status somebody else has taken.
        case badProcess(Int32)
        case badAddress(String)
        case system(operation: String, errno: Int32)
    }
}

extension RunLoop.SourceError {
    /// Whether the same call may succeed later, when the process or the system has more descriptors or memory.
    var isShortage: Bool {
        guard case .system(_, let errno) = self else { return false }
        return [EMFILE, ENFILE, ENOMEM, ENOSPC, ENOBUFS, EAGAIN].contains(errno)
    }

    /// The kernel's number for it.
    var errno: Int32 {
        switch self {
        case .badDescriptor: EBADF
        case .notPollable: EPERM
        case .badSignal, .badAddress: EINVAL
        case .badProcess: ECHILD
        case .system(_, let errno): errno
        }
    }
}
