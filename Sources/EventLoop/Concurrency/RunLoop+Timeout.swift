/// The operation did not return before its time limit, and was cancelled.
public struct TaskTimedOut: Error, Sendable, CustomStringConvertible {
    /// Makes the error: for tests of code that catches it.
    public init() {}
    public var description: String { "the task did not end in time" }
}

extension RunLoop {
    /// Runs `body`, and cancels it after `duration` of this loop's time.
    ///
    /// Never returns before `body` returns. `body` runs in a child task, which should end soon after it is cancelled. If `body` returns a value
    /// despite the cancellation, this returns the value. If it throws an error after the limit has passed, this throws `TaskTimedOut` instead. If the
    /// loop ends, it cannot keep the limit: `body` is cancelled, and this throws `RunLoopEnded` instead. Cancelling the calling task cancels `body`.
    ///
    /// The limit is a one-shot timer in the loop's common modes, which is removed as soon as `body` returns. While the loop runs in none of
    /// the common modes, the limit does not pass. `body` keeps its own isolation, and need not run on the loop. Any task may call this.
    ///
    /// ```
    /// let answer = try await loop.withTimeout(.seconds(2)) { try await server.ask(question) }
    /// ```
    public func withTimeout<R>(
        _ duration: Duration, isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> sending R
    ) async throws -> sending R { /* DOES CALLOUT */
        let (deadline, clock) = (now().advanced(by: duration), clock)
        return try await withoutActuallyEscaping(body) { body in
            _ = isolation  // used here, so that this closure has the caller's isolation, too
            nonisolated(unsafe) let borrowed = body  // SAFETY: this function waits until the child task that runs it has ended
            let work = BorrowedOperation(borrowed)
            // Of the task that ends first: the error to throw instead of the body's error.
            let other = await withTaskGroup(of: (any Error)?.self) { group in
                group.addTask {
                    await work.run()
                    return nil
                }
                group.addTask {
                    do { try await clock.sleep(until: deadline) } catch { return error as? RunLoopEnded }
                    return TaskTimedOut()
                }
                let first = await group.next()!  // there are two
                group.cancelAll()  // the timer or the body, whichever has not ended
                await group.waitForAll()
                return first
            }
            return try work.take(orThrow: other)
        }
    }
}

/// A closure that a child task runs while its caller waits, and its result.
private final class BorrowedOperation<R>: @unchecked Sendable {
    // SAFETY: only the child task accesses both until it ends. The caller waits for that, and accesses them afterwards.
    private let body: () async throws -> sending R
    private var result: Result<R, any Error>?
    init(_ body: @escaping () async throws -> sending R) { self.body = body }
    func run() async { do { result = .success(try await body()) } catch { result = .failure(error) } }

    /// Returns the value, or throws `other`, if there is one, instead of the body's error.
    func take(orThrow other: (any Error)?) throws -> sending R {
        nonisolated(unsafe) let taken = result.take()!  // SAFETY: the body has returned, and no other code refers to its value
        do { return try taken.get() } catch { throw other ?? error }
    }
}
