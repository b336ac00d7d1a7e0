// The threads of a service, and a way to block outside Swift's pool.

#if ServiceLifecycle

import EventLoop

/// One thread or a group.
protocol LoopThreads: Sendable {
    var runLoops: [RunLoop] { get }
    /// Stops the threads, and returns those that have not ended.
    func stop() async -> [RunLoopThread]
}

struct GroupOfThreads: LoopThreads {
    let group: RunLoopThreadGroup
    init(_ group: RunLoopThreadGroup) { self.group = group }
    var runLoops: [RunLoop] { group.runLoops }
    func stop() async -> [RunLoopThread] { await group.shutdown(timeout: .zero) }
}

struct SingleThread: LoopThreads {
    let thread: RunLoopThread
    var runLoops: [RunLoop] { [thread.runLoop] }
    func stop() async -> [RunLoopThread] {
        thread.stop()
        return [thread]
    }
}

/// Calls `body`, which may block, on a thread of its own, and suspends until it has returned.
func onThreadOfItsOwn<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
        let code = NativeThread.start { continuation.resume(with: Result { try body() }) }
        if code != 0 { continuation.resume(throwing: RunLoop.SourceError.system(operation: "starting a thread", errno: code)) }
    }
}

#endif
