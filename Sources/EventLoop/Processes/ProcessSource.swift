internal import CPlatform
internal import EventLoopLibC

extension RunLoop {
    /// How a process exited.
    public enum ExitStatus: Sendable, Hashable {
        /// The process returned from `main` or called `exit`. The system keeps the lowest eight bits of the code.
        case exited(Int32)
        /// A signal terminated the process.
        case signaled(signal: Int32, coreDumped: Bool)
    }

    /// Reports the exit status of a child process once, reaps the child, and becomes invalid.
    ///
    /// The source reaps the child (`waitid`) just before it calls the handler, and no other child. The child may exit before the source is made or
    /// added; that is reported when one of the source's modes runs. If the source is invalidated earlier, the program must reap the child.
    ///
    /// If other code reaps the child first (it waits for this or for any child), the source *fails*: `failure` is `.badProcess`, and the handler is
    /// not called. The same happens if SIGCHLD is ignored: the kernel then reaps children itself. Of two sources of one child, one fails.
    ///
    /// Thread-safe. If the source is in several loops, one of them reports. Uses one descriptor: the process's own (pidfd, on Linux) or, where the
    /// kernel has none (before 5.3, and in some sandboxes), one that SIGCHLD writes to; then the conditions of `SignalSource` apply.
    public final class ProcessSource: Source, @unchecked Sendable {
        // SAFETY: constants.
        /// The process. After the status was reported, the system may reuse the number for another process.
        public let pid: Int32
        /// Readable when the child has exited or may have exited. Closed by deinit if it is the process's own.
        private let descriptor: Int32
        private let identity: FileIdentity
        /// Where the kernel has no descriptor of the process: the watch of SIGCHLD, which says that some child has changed state.
        private let signals: SignalWatch?
        private let handler: HandlerSlot<@Sendable (ProcessSource, ExitStatus) -> Void>

        /// Makes a source for a child of this process.
        ///
        /// - Throws: `SourceError.badProcess` if the process is not a child, or has already been reaped; `.system` if there are no descriptors left.
        public init(
            pid: Int32, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (ProcessSource, ExitStatus) -> Void
        ) throws(SourceError) {
            _ = try Self.look(at: pid, reaps: false)
            let descriptor = cplatform_child_descriptor(pid)
            if descriptor >= 0 {
                do throws(SourceError) {
                    // Other code may have reaped the child meanwhile, and the number may be another process's.
                    _ = try Self.look(at: pid, descriptor, reaps: false)
                } catch {
                    cplatform_close(descriptor)
                    throw error
                }
                (self.descriptor, identity, signals) = (descriptor, FileIdentity(of: descriptor)!, nil)  // it is open
            } else {
                if errno == ESRCH { throw .badProcess(pid) }  // it has exited meanwhile, and other code has reaped it
                guard errno == ENOSYS else { throw .system(operation: "making a descriptor for process \(pid)", errno: errno) }
                let signals = try SignalWatch(signal: SIGCHLD)
                if try Self.look(at: pid, reaps: false) != nil { signals.wake() }  // SIGCHLD may have come before the watch
                (self.descriptor, identity, self.signals) = (signals.descriptor, signals.identity, signals)
            }
            self.pid = pid
            self.handler = HandlerSlot(handler)
            super.init(kind: .watched, recordedKind: .processSource, label: label, site: CreationSite(file, line))
        }

        deinit {
            signals?.end()
            endByLastRelease()
            if signals == nil { cplatform_close(descriptor) }
        }

        /// An edge: the end of a traced child makes the descriptor readable but cannot be waited for, until the kernel reports it again.
        override var watch: Watch? { Watch(identity: identity, descriptor: descriptor, trigger: .edge) }
        override func willBeWatched() { signals?.letThrough() }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            do throws(SourceError) {
                // Taken first: a signal that arrives after the look makes the descriptor readable again.
                _ = signals?.take()
                guard let status = try Self.look(at: pid, signals == nil ? descriptor : -1, reaps: true) else { return false }
                // First, so that a run that is nested in the handler does not look for a child that was reaped.
                invalidate()
                handler.with { $0.handlers(self, status) }
                return true
            } catch {
                noteFailure(error)
                invalidate()
                return false
            }
        }

        /// Asks about this child, and no other. Nil if it has not exited.
        private static func look(at child: Int32, _ descriptor: Int32 = -1, reaps: Bool) throws(SourceError) -> ExitStatus? {
            var exit = cplatform_exit()
            switch cplatform_child_status(child, descriptor, reaps, &exit) {
            case 0: return nil
            case 1: return exit.was_killed ? .signaled(signal: exit.status, coreDumped: exit.dumped_core) : .exited(exit.status)
            default: throw errno == ECHILD ? .badProcess(child) : .system(operation: "waitid for process \(child)", errno: errno)
            }
        }

        override func didInvalidate() { signals?.end() }
        override func releaseHandlers() { handler.clear() }
        override var typeDescription: String { "process \(pid)" }
    }
}
