/// A place where one task waits for an outcome. Any thread may deliver one; the first counts. The task makes it, and who may deliver retains it.
package final class TaskWait<Outcome: Sendable>: Sendable {
    private struct State: Sendable {
        /// The task's, while it waits.
        var continuation: CheckedContinuation<Outcome, Never>?
        var result: Outcome?
    }

    private let state = LoopLock(State())
    package init() {}

    /// Resumes the task with `outcome`. No-op if there is an outcome already. Thread-safe.
    package func deliver(_ outcome: Outcome) {
        let continuation = state.withLock { state -> CheckedContinuation<Outcome, Never>? in
            if state.result != nil { return nil }
            state.result = outcome
            return state.continuation.take()
        }
        continuation?.resume(returning: outcome)
    }

    /// Suspends the task until there is an outcome. When `deadline` (real time) passes or the task is cancelled, calls `giveUp`, on any thread, at
    /// most twice: it or another thread must deliver.
    package func outcome(
        until deadline: RunLoop.Instant?, isolation: isolated (any Actor)? = #isolation, giveUp: @escaping @Sendable () -> Void
    ) async -> Outcome {
        var timer: Task<Void, Never>?
        if let deadline, deadline != .distantFuture {
            if deadline <= .now { giveUp() } else { timer = Task.detached { if await Self.hasCome(deadline) { giveUp() } } }
        }
        defer { timer?.cancel() }
        return await withTaskCancellationHandler(
            operation: {
                await withCheckedContinuation(isolation: isolation) { continuation in
                    let outcome = state.withLock { state -> Outcome? in
                        if state.result == nil { state.continuation = continuation }
                        return state.result
                    }
                    if let outcome { continuation.resume(returning: outcome) }
                }
            }, onCancel: { giveUp() }, isolation: isolation)
    }

    /// Suspends until `deadline`. Returns false if the task is cancelled earlier.
    private static func hasCome(_ deadline: RunLoop.Instant) async -> Bool {
        while true {  // ends: at the deadline, or with the cancellation
            let left = RunLoop.Instant.now.duration(to: deadline)
            if left <= .zero { return true }
            // A sleep of centuries would overflow the runtime's arithmetic.
            do { try await Task.sleep(for: min(left, Duration.seconds(86_400)), clock: .suspending) } catch { return false }
        }
    }
}
