// The threads of a service, and a way to block outside Swift's pool.

#if ServiceLifecycle

import EventLoop
import EventLoopLibC

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
        let code = startThread { continuation.resume(with: Result { try body() }) }
        if code != 0 { continuation.resume(throwing: RunLoop.SourceError.system(operation: "starting a thread", errno: code)) }
    }
}

private final class Start: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

/// Runs `body` on a new, detached thread. Returns zero or an errno.
private func startThread(_ body: @escaping @Sendable () -> Void) -> Int32 {
    // The thread takes this reference.
    let context = Unmanaged.passRetained(Start(body))
    let code = createDetached(context.toOpaque())
    if code != 0 { context.release() }
    return code
}

#if canImport(Darwin)

private func createDetached(_ context: UnsafeMutableRawPointer) -> Int32 {
    var handle: pthread_t?
    let code = pthread_create(
        &handle, nil,
        {
            Unmanaged<Start>.fromOpaque($0).takeRetainedValue().body(); return nil
        }, context)
    if let handle, code == 0 { pthread_detach(handle) }
    return code
}

#else

private func createDetached(_ context: UnsafeMutableRawPointer) -> Int32 {
    var handle: pthread_t = 0
    let code = pthread_create(
        &handle, nil,
        {
            Unmanaged<Start>.fromOpaque($0!).takeRetainedValue().body(); return nil
        }, context)
    if code == 0 { pthread_detach(handle) }
    return code
}

#endif

#endif
