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
    /// The source reaps the child (`waitid`) just before it calls the handler, and reaps no other child of the process. The child may exit
    /// before the source is made, or before the source is in a loop; that is reported when one of the source's modes runs. If the source is
    /// invalidated earlier, it does not reap the child, and the program must do so.
    ///
    /// If other code waits for the same child or for any child, and reaps the child first, the source *fails*: `failure` is `.badProcess`,
    /// and the handler is not called. The same happens if SIGCHLD is ignored, because the kernel then reaps children itself. If two sources
    /// watch one child, one of them fails.
    ///
    /// Thread-safe. If the source is in several loops, one of them reports. Uses one descriptor: the process's own (pidfd, on Linux) or,
    /// where the kernel has none (before 5.3, and in some sandboxes), one that SIGCHLD writes to; then the conditions of `SignalSource`
    /// apply.
    public final class ProcessSource: Source, @unchecked Sendable {
        // SAFETY: constants.

        /// The process. After the status was reported, the system may reuse the number for another process.
        public let pid: Int32
        private let child: ChildWatch

        private let handler: HandlerSlot<@Sendable (ProcessSource, ExitStatus) -> Void>

        /// Makes a source for a child of this process.
        ///
        /// - Throws: `SourceError.badProcess` if the process is not a child, or has already been reaped; `.system` if there are no
        ///   descriptors left.
        public init(
            pid: Int32, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (ProcessSource, ExitStatus) -> Void
        ) throws(SourceError) {
            child = try ChildWatch(child: pid)
            self.pid = pid
            self.handler = HandlerSlot(handler)
            super.init(kind: .watched, recordedKind: .processSource, label: label, site: CreationSite(file, line))
        }

        deinit {
            child.end()
            endByLastRelease()
        }

        override var watch: Watch? {
            // An edge: while another process traces the child, its end makes the descriptor readable but cannot be waited for. When the tracer
            // releases the child, the kernel reports it again.
            Watch(descriptor: child.descriptor, trigger: .edge, identity: child.identity)
        }

        override func willBeWatched() { child.letThrough() }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            do throws(SourceError) {
                guard let status = try child.take() else { return false }
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

        override func didInvalidate() { child.end() }

        override func releaseHandlers() { handler.clear() }

        override var typeDescription: String { "process \(pid)" }
    }
}
