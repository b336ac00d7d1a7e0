// The end of a child process as an input source.

import Synchronization

extension RunLoop {
    /// How a process ended.
    public enum ExitStatus: Sendable, Hashable {
        /// It returned from `main` or called `exit` with this code, of which the system keeps the lowest eight bits.
        case exited(Int32)
        /// A signal ended it.
        case signaled(signal: Int32, coreDumped: Bool)

        init(_ exit: ChildExit) {
            self = exit.wasKilled ? .signaled(signal: exit.status, coreDumped: exit.dumpedCore) : .exited(exit.status)
        }
    }

    /// The end of a child process, reported once; the source is invalid then.
    ///
    /// The child is buried (`waitid`) when its status is taken, just before the handler is called, and no other child of the process is ever
    /// touched. It may have ended before the source is made, or before it is in a loop: that is reported when one of the source's modes runs. A
    /// source that is invalidated before leaves the child alone, and whoever invalidates it answers for the burial.
    ///
    /// Somebody else who waits for the same child, or for any child, and is quicker, leaves nothing to report: the source *fails* then, with
    /// `failure` as `.badProcess`, and its handler is not called. The same happens when SIGCHLD is ignored, because the kernel buries children
    /// unasked. Two sources for one child are such a case.
    ///
    /// Thread-safe. In several loops one of them reports. Costs a descriptor: the process's own (pidfd, on Linux), or where the kernel has none
    /// (before 5.3, some sandboxes) one that SIGCHLD writes to, under the conditions of `SignalSource`.
    public final class ProcessSource: Source, @unchecked Sendable {
        // SAFETY: constants.

        /// The process. Its number may be another's once the status has been reported.
        public let pid: Int32
        private let child: ChildWatch

        private let handler: HandlerSlot<Handler>

        private struct Handler: Sendable {
            let call: @Sendable (ProcessSource, ExitStatus) -> Void
        }

        /// Makes a source for a child of this process.
        ///
        /// - Throws: `SourceError.badProcess` for a number that is no child's, or whose status has been taken already; `.system` when there are
        ///   no descriptors left.
        public init(
            pid: Int32, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (ProcessSource, ExitStatus) -> Void
        ) throws(SourceError) {
            child = try ChildWatch(child: pid)
            self.pid = pid
            self.handler = HandlerSlot(Handler(call: handler))
            super.init(kind: .watched, label: label, site: CreationSite(file, line))
        }

        deinit {
            child.end()
            endByLastRelease()
        }

        override var watch: Watch? {
            Watch(descriptor: child.descriptor, wanted: .read, trigger: .level, priority: .default, identity: child.identity)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            do throws(SourceError) {
                guard let exit = try child.take() else { return false }
                // First, so that a run nested in the handler does not look for a child that is gone.
                invalidate()
                handler.with { $0.handlers.call(self, ExitStatus(exit)) }
                return true
            } catch {
                state.withLock { state in
                    if state.failure == nil { state.failure = error }
                }
                invalidate()
                return false
            }
        }

        override func didInvalidate() { child.end() }

        override func releaseHandlers() { handler.clear() }

        override var typeDescription: String { "process \(pid)" }
    }
}
