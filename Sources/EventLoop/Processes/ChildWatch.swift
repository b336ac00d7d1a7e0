// A descriptor that becomes readable when a child process has ended, or may have.
//
// Lifecycle: made with the source; the descriptor is closed by deinit, when the kernel has let go of it.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// How a process ended.
struct ChildExit: Sendable, Equatable {
    let wasKilled: Bool
    let dumpedCore: Bool
    /// The exit code, or the signal.
    let status: Int32
}

/// Watches one child. Thread-safe.
///
/// Where the kernel has a descriptor for a process (pidfd, kqueue) that is watched. Elsewhere SIGCHLD is, and says that some child has changed:
/// then this one is asked for, and no other.
final class ChildWatch: Sendable {
    private enum Way: Sendable {
        case descriptor(Int32)
        case signal(SignalWatch)
    }

    let child: Int32
    private let way: Way
    let identity: FileIdentity

    init(child: Int32) throws(RunLoop.SourceError) {
        self.child = child
        _ = try Self.look(at: child, takes: false)
        let descriptor = cplatform_child_descriptor(child)
        if descriptor >= 0 {
            way = .descriptor(descriptor)
            // It is open.
            identity = FileIdentity(of: descriptor)!
            // Somebody else may have buried it meanwhile, and the number be another process's.
            _ = try Self.look(at: child, descriptor, takes: false)
            return
        }
        // It has ended meanwhile and somebody else has buried it.
        if errno == ESRCH { throw .badProcess(child) }
        guard errno == ENOSYS else { throw .system(operation: "making a descriptor for process \(child)", errno: errno) }
        let signals = try SignalWatch(signal: SIGCHLD)
        way = .signal(signals)
        identity = signals.identity
        // Its signal may have come before the watch.
        if try Self.look(at: child, takes: false) != nil { signals.wake() }
    }

    deinit {
        if case .descriptor(let descriptor) = way { close(descriptor) }
    }

    var descriptor: Int32 {
        switch way {
        case .descriptor(let descriptor): descriptor
        case .signal(let signals): signals.descriptor
        }
    }

    /// How the child ended, once; nil when it has not. After that it is gone.
    func take() throws(RunLoop.SourceError) -> ChildExit? {
        switch way {
        case .descriptor(let descriptor): return try Self.look(at: child, descriptor, takes: true)
        case .signal(let signals):
            // Before the look: a signal that comes after it makes the descriptor readable again.
            _ = signals.take()
            return try Self.look(at: child, takes: true)
        }
    }

    /// Hears no more of SIGCHLD. A second call does nothing.
    func end() {
        if case .signal(let signals) = way { signals.end() }
    }

    private static func look(at child: Int32, _ descriptor: Int32 = -1, takes: Bool) throws(RunLoop.SourceError) -> ChildExit? {
        var exit = cplatform_exit()
        switch cplatform_child_status(child, descriptor, takes, &exit) {
        case 0: return nil
        case 1: return ChildExit(wasKilled: exit.was_killed, dumpedCore: exit.dumped_core, status: exit.status)
        default: throw errno == ECHILD ? .badProcess(child) : .system(operation: "waitid", errno: errno)
        }
    }
}
