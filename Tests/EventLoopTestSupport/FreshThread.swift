// A thread of its own for every test: `RunLoop.current` is per thread, and Swift Testing runs tests on pool
// threads that it shares among tests.

public import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Runs `body` on a new thread, hands it that thread's loop, and returns what it returns when the thread has ended.
///
/// The calling thread blocks meanwhile. What `body` throws comes out here.
@discardableResult
public func onFreshThread<R: Sendable>(_ body: @escaping @Sendable (RunLoop) throws -> R) throws -> R {
    try joinableThread(body).join()
}

/// Starts `body` on a new thread with a loop of its own; `join()` waits for the thread's end and returns the result.
public func joinableThread<R: Sendable>(_ body: @escaping @Sendable (RunLoop) throws -> R) -> JoinableThread<R> {
    JoinableThread { try body(RunLoop.current) }
}

/// A plain thread without a loop (until it asks for one).
public func plainThread<R: Sendable>(_ body: @escaping @Sendable () throws -> R) -> JoinableThread<R> {
    JoinableThread(body)
}

public final class JoinableThread<R: Sendable>: Sendable {
    private let result = Locked<Result<R, any Error>?>(nil)
    private let thread = Locked<UInt?>(nil)

    init(_ body: @escaping @Sendable () throws -> R) {
        let start = ThreadStart { [self] in
            let outcome = Result { try body() }
            result.withLock { $0 = outcome }
        }
        thread.withLock { $0 = start.launch() }
    }

    /// Waits until the thread has ended, its exit handlers included.
    @discardableResult
    public func join() throws -> R {
        let handle = thread.withLock { handle in
            defer { handle = nil }
            return handle
        }
        if let handle { joinThread(handle) }
        return try result.withLock { $0! }.get()
    }
}

private final class ThreadStart: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }

    func launch() -> UInt {
        let context = Unmanaged.passRetained(self).toOpaque()
        #if canImport(Glibc)
        var handle = pthread_t()
        let code = pthread_create(
            &handle, nil,
            {
                Unmanaged<ThreadStart>.fromOpaque($0!).takeRetainedValue().body(); return nil
            }, context)
        precondition(code == 0, "pthread_create: \(code)")
        return UInt(handle)
        #else
        var handle: pthread_t?
        let code = pthread_create(
            &handle, nil,
            {
                Unmanaged<ThreadStart>.fromOpaque($0).takeRetainedValue().body(); return nil
            }, context)
        precondition(code == 0, "pthread_create: \(code)")
        return UInt(bitPattern: handle!)
        #endif
    }
}

private func joinThread(_ handle: UInt) {
    #if canImport(Glibc)
    pthread_join(pthread_t(handle), nil)
    #else
    pthread_join(pthread_t(bitPattern: handle)!, nil)
    #endif
}
