/// Comes once. Thread-safe.
final class ThreadEnd: Sendable {
    private let latch = Latch()
    /// The tasks that wait; nil when it has come.
    private let tasks = LoopLock<[ObjectIdentifier: TaskWait<Bool>]?>([:])

    func come() {
        let waiting = tasks.withLock { $0.take() } ?? [:]
        for wait in waiting.values { wait.deliver(true) }
        latch.open()
    }

    /// Returns false if `deadline` (real time) passes first.
    func wait(until deadline: RunLoop.Instant?) -> Bool { latch.wait(until: deadline) }
    /// For tests.
    var waitingTasks: Int { tasks.withLock { $0?.count ?? 0 } }

    /// Returns false if `deadline` (real time) passes or the task is cancelled first.
    func suspend(until deadline: RunLoop.Instant?) async -> Bool {
        // Before the lock: see `Latch`.
        if latch.wait(until: .distantPast) { return true }
        let wait = TaskWait<Bool>()
        let hasCome = tasks.withLock { tasks in
            tasks?[ObjectIdentifier(wait)] = wait
            return tasks == nil
        }
        if hasCome { return true }
        let result = await wait.outcome(until: deadline) { wait.deliver(false) }
        tasks.withLock { $0?[ObjectIdentifier(wait)] = nil }
        return result
    }
}
