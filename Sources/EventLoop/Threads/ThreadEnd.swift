/// Comes once. Threads wait for it on a latch, and tasks are resumed. Thread-safe.
final class ThreadEnd: Sendable {
    private struct Tasks: Sendable {
        var hasCome = false
        var waiting: [ObjectIdentifier: TaskWait<Bool>] = [:]
    }

    private let latch = Latch()
    private let tasks = LoopLock(Tasks())

    func come() {
        let waiting = tasks.withLock { tasks in
            tasks.hasCome = true
            defer { tasks.waiting = [:] }
            return tasks.waiting
        }
        for wait in waiting.values { wait.deliver(true) }
        latch.open()
    }

    /// Blocks until the thread has ended. Returns false if `deadline` (real time) passes first.
    func wait(until deadline: RunLoop.Instant?) -> Bool { latch.wait(until: deadline) }

    /// How many tasks wait. For tests.
    var waitingTasks: Int { tasks.withLock { $0.waiting.count } }

    /// Suspends the task until the thread has ended. Returns false if `deadline` (real time) passes or the task is cancelled first.
    func suspend(until deadline: RunLoop.Instant?) async -> Bool {
        // Before the lock: see `Latch`.
        if latch.wait(until: .distantPast) { return true }
        let wait = TaskWait<Bool>()
        let hasCome = tasks.withLock { tasks in
            if !tasks.hasCome { tasks.waiting[ObjectIdentifier(wait)] = wait }
            return tasks.hasCome
        }
        if hasCome { return true }
        let result = await wait.outcome(until: deadline) { wait.deliver(false) }
        tasks.withLock { _ = $0.waiting.removeValue(forKey: ObjectIdentifier(wait)) }
        return result
    }
}
