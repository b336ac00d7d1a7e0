// The end of a child process, for a task.

extension RunLoop {
    /// Waits for a child of this process to end, and returns how it did.
    ///
    /// As `ProcessSource` in `mode` of this loop (by default all common modes): the child may have ended already, is buried, and no other
    /// is touched. Throws `SourceError.badProcess` for what is no child or was waited for by somebody else, `CancellationError` when the
    /// task is cancelled, and `RunLoopEnded` when the loop's thread exits; the child is left alone in the last two cases, unless it had
    /// just ended.
    ///
    /// ```
    /// let status = try await loop.exitStatus(of: child)
    /// ```
    ///
    /// Any task may call this.
    public func exitStatus(
        of pid: Int32, mode: Mode = .common, isolation: isolated (any Actor)? = #isolation, file: StaticString = #fileID, line: UInt = #line
    ) async throws -> ExitStatus {
        let channel = SingleElementChannel<ExitStatus>()
        try report(endOf: pid, to: channel, mode, file, line)
        return try await channel.only(isolation: isolation)
    }

    /// Apart, so that the loop alone holds the source while the task waits, and it goes with the loop.
    private func report(
        endOf pid: Int32, to channel: SingleElementChannel<ExitStatus>, _ mode: Mode, _ file: StaticString, _ line: UInt
    ) throws {
        let source = try ProcessSource(pid: pid, label: "a task waits", file: file, line: line) { _, status in
            channel.post(status) { _, _ in }
        }
        source.onInvalidation { channel.end(throwing: $0.failure ?? RunLoopEnded()) }
        channel.connect { [weak source] in source?.invalidate() }
        if !add(source, forMode: mode) { throw RunLoopEnded() }
    }
}

extension SingleElementChannel {
    /// The only element. A channel that ends without one has been cancelled.
    func only(isolation: isolated (any Actor)?) async throws -> Element {
        guard let element = try await next(isolation: isolation) else { throw CancellationError() }
        return element
    }
}
