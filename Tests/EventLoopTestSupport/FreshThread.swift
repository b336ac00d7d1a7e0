// Each test runs on a thread of its own, because `RunLoop.current` is per thread and Swift Testing shares the threads of its pool among
// tests.
//
// A wait for such a thread has a bound: if a loop hangs, its test fails and leaves the thread behind.

public import EventLoop
public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Runs `body` with the loop of a new thread on that thread, and returns its result after the thread has ended.
///
/// The calling thread blocks meanwhile. Rethrows the error of `body`.
@discardableResult
public func onFreshThread<R: Sendable>(
    _ location: SourceLocation = #_sourceLocation, _ body: @escaping @Sendable (RunLoop) throws -> R
) throws -> R {
    try joinableThread(location, body).join(location)
}

/// Starts `body` on a new thread with a loop of its own; `join()` waits for the thread's end and returns the result.
public func joinableThread<R: Sendable>(
    _ location: SourceLocation = #_sourceLocation, _ body: @escaping @Sendable (RunLoop) throws -> R
) -> JoinableThread<R> {
    JoinableThread(location) { try body(RunLoop.current) }
}

/// A plain thread, which has no loop until it asks for one.
public func plainThread<R: Sendable>(
    _ location: SourceLocation = #_sourceLocation, _ body: @escaping @Sendable () throws -> R
) -> JoinableThread<R> {
    JoinableThread(location, body)
}

/// The identity of the current thread, for comparisons: `pthread_t` is opaque, and is not Sendable on every platform.
public func currentThreadID() -> UInt {
    #if canImport(Glibc)
    UInt(pthread_self())
    #else
    UInt(bitPattern: pthread_self())
    #endif
}

public final class JoinableThread<R: Sendable>: Sendable {
    private let result = Locked<Result<R, any Error>?>(nil)
    private let thread = Locked<UInt?>(nil)
    private let start: SourceLocation

    init(_ location: SourceLocation, _ body: @escaping @Sendable () throws -> R) {
        start = location
        let start = ThreadStart { [self] in
            let outcome = Result { try body() }
            result.withLock { $0 = outcome }
        }
        thread.withLock { $0 = start.launch() }
    }

    deinit { detach() }

    /// Tells the C library and ThreadSanitizer that no thread joins this one. A thread that is neither joined nor detached is detached when
    /// the last reference to this object is released.
    public func detach() {
        let handle = thread.withLock { handle in
            defer { handle = nil }
            return handle
        }
        if let handle { detachThread(handle) }
    }

    /// Waits until the thread and its exit handlers have ended. Throws the error of the body, or `WaitedTooLong` if the thread does not end
    /// in time. After `WaitedTooLong`, the thread can be joined again.
    @discardableResult
    public func join(within bound: Duration = patienceForThreads, _ location: SourceLocation = #_sourceLocation) throws -> R {
        let handle = thread.withLock { handle in
            defer { handle = nil }
            return handle
        }
        if let handle {
            guard joinThread(handle, within: bound, hasReturned: { result.withLock { $0 != nil } }) else {
                thread.withLock { $0 = handle }
                let body = result.withLock { $0 == nil } ? "its body has not returned" : "its body has returned, its exit handlers have not"
                let what = "the end of the thread that was started in \(start.fileID):\(start.line); \(body)"
                throw WaitedTooLong(for: what, bound: bound, location)
            }
        }
        return try result.withLock { $0! }.get()  // the thread has ended, or was joined before
    }
}

private final class ThreadStart: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }

    /// Returns what `joinThread` and `detachThread` take.
    func launch() -> UInt {
        #if canImport(Glibc)
        guard isUnderAddressSanitizer else { return UInt(create(detached: false)) }
        let end = EndOfThread()
        let start = ThreadStart { [self] in
            end.begin()
            body()
        }
        _ = start.create(detached: true)
        return end.handle
        #else
        let context = Unmanaged.passRetained(self).toOpaque()
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

    #if canImport(Glibc)
    private func create(detached: Bool) -> pthread_t {
        let attributes = UnsafeMutablePointer<pthread_attr_t>.allocate(capacity: 1)
        pthread_attr_init(attributes)
        defer {
            pthread_attr_destroy(attributes)
            attributes.deallocate()
        }
        if detached { pthread_attr_setdetachstate(attributes, Int32(PTHREAD_CREATE_DETACHED)) }
        var handle = pthread_t()
        let code = pthread_create(
            &handle, attributes,
            {
                Unmanaged<ThreadStart>.fromOpaque($0!).takeRetainedValue().body(); return nil
            }, Unmanaged.passRetained(self).toOpaque())
        precondition(code == 0, "pthread_create: \(code)")
        return handle
    }
    #endif
}

#if canImport(Glibc)
// Glibc's overlay does not declare this function.
@_silgen_name("pthread_timedjoin_np")
private func systemTimedJoin(_ thread: pthread_t, _ result: UnsafeMutableRawPointer?, _ deadline: UnsafePointer<timespec>) -> Int32

private func detachThread(_ handle: UInt) {
    if isUnderAddressSanitizer { EndOfThread(handle: handle).abandon() } else { pthread_detach(pthread_t(handle)) }
}

/// Returns false if the thread has not ended in time.
private func joinThread(_ handle: UInt, within bound: Duration, hasReturned: () -> Bool) -> Bool {
    var deadline = timespec()
    // The C library supports no other clock here. Setting this clock forwards shortens the bound, which is long enough for that.
    clock_gettime(CLOCK_REALTIME, &deadline)
    deadline.tv_sec += Int(bound.components.seconds)
    if isUnderAddressSanitizer { return EndOfThread(handle: handle).wait(until: deadline) }
    return systemTimedJoin(pthread_t(handle), nil, &deadline) == 0
}
#else
private func detachThread(_ handle: UInt) { pthread_detach(pthread_t(bitPattern: handle)!) }

/// Returns false if the body has not returned in time. On this system, the rest of the thread's end has no bound.
private func joinThread(_ handle: UInt, within bound: Duration, hasReturned: () -> Bool) -> Bool {
    do { try waitUntil("", within: bound, hasReturned) } catch { return false }
    pthread_join(pthread_t(bitPattern: handle)!, nil)
    return true
}
#endif

/// Runs a blocking closure on a thread of its own. A test that blocks a thread of the pool may wait forever for a task that needs one.
public func elsewhere<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
    let handle = Box<JoinableThread<R>?>(nil)
    await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
        handle.value = plainThread {
            defer { continuation.resume() }
            return try body()
        }
    }
    return try handle.value!.join()
}
