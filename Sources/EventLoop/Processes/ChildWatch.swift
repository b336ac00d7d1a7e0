// Lifecycle: created with the source. deinit closes the descriptor, after the kernel has stopped watching it.

internal import CPlatform
internal import EventLoopLibC

/// A descriptor that becomes readable when a child process has exited or may have exited. Thread-safe.
///
/// Watches the process's own descriptor where the kernel has one (pidfd, kqueue). Elsewhere watches SIGCHLD, which says that some child has
/// changed state; then this class asks about its own child, and no other.
final class ChildWatch: Sendable {
    private enum Mechanism: Sendable {
        case descriptor(Int32)
        case signal(SignalWatch)
    }

    let child: Int32
    private let mechanism: Mechanism
    let identity: FileIdentity

    init(child: Int32) throws(RunLoop.SourceError) {
        self.child = child
        _ = try Self.look(at: child, reaps: false)
        let descriptor = cplatform_child_descriptor(child)
        if descriptor >= 0 {
            mechanism = .descriptor(descriptor)
            // The descriptor is open.
            identity = FileIdentity(of: descriptor)!
            // Other code may have reaped the child meanwhile, and the number may be another process's.
            _ = try Self.look(at: child, descriptor, reaps: false)
            return
        }
        // The child has exited meanwhile, and other code has reaped it.
        if errno == ESRCH { throw .badProcess(child) }
        guard errno == ENOSYS else { throw .system(operation: "making a descriptor for process \(child)", errno: errno) }
        let signals = try SignalWatch(signal: SIGCHLD)
        mechanism = .signal(signals)
        identity = signals.identity
        // SIGCHLD may have arrived before the watch.
        if try Self.look(at: child, reaps: false) != nil { signals.wake() }
    }

    deinit {
        if case .descriptor(let descriptor) = mechanism { cplatform_close(descriptor) }
    }

    var descriptor: Int32 {
        switch mechanism {
        case .descriptor(let descriptor): descriptor
        case .signal(let signals): signals.descriptor
        }
    }

    /// Before a loop's thread waits for the descriptor.
    func letThrough() { if case .signal(let signals) = mechanism { signals.letThrough() } }

    /// Reaps the child and returns how it exited; nil if it has not exited.
    func take() throws(RunLoop.SourceError) -> RunLoop.ExitStatus? {
        switch mechanism {
        case .descriptor(let descriptor): return try Self.look(at: child, descriptor, reaps: true)
        case .signal(let signals):
            // Taken first: a signal that arrives after the look makes the descriptor readable again.
            _ = signals.take()
            return try Self.look(at: child, reaps: true)
        }
    }

    /// Stops watching SIGCHLD. No-op the second time.
    func end() {
        if case .signal(let signals) = mechanism { signals.end() }
    }

    private static func look(at child: Int32, _ descriptor: Int32 = -1, reaps: Bool) throws(RunLoop.SourceError) -> RunLoop.ExitStatus? {
        var exit = cplatform_exit()
        switch cplatform_child_status(child, descriptor, reaps, &exit) {
        case 0: return nil
        case 1: return exit.was_killed ? .signaled(signal: exit.status, coreDumped: exit.dumped_core) : .exited(exit.status)
        default: throw errno == ECHILD ? .badProcess(child) : .system(operation: "waitid for process \(child)", errno: errno)
        }
    }
}
