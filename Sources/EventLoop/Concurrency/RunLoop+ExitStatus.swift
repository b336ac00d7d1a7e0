extension RunLoop {
    /// Waits for a child of this process to exit, and returns how it exited. Any task may call this.
    ///
    /// Uses a `ProcessSource` in `mode` of this loop (by default, all common modes), which reaps the child and no other. The child may have exited
    /// already. Throws `SourceError.badProcess` if the process is not a child or other code reaps it, `CancellationError` if the task is cancelled,
    /// and `RunLoopEnded` when the loop's thread exits. In the last two cases the child is not reaped, unless it has just exited.
    public func exitStatus(
        of pid: Int32, mode: Mode = .common, isolation: isolated (any Actor)? = #isolation, file: StaticString = #fileID, line: UInt = #line
    ) async throws -> ExitStatus {
        let channel = SingleElementChannel<ExitStatus>()
        channel.connect(on: self, mode) {
            try ProcessSource(pid: pid, label: "a task waits", file: file, line: line) { _, status in channel.post(status) { _, _ in } }
        }
        return try await channel.only(isolation: isolation)
    }
}
