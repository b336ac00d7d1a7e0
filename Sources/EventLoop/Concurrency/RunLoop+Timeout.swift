// A limit to how long a task waits, kept by a timer of a loop.

/// The time given to a task's operation passed before it returned; the operation was cancelled.
public struct TaskTimedOut: Error, Sendable { public init() {} }

extension RunLoop {
    /// Runs `body`, and cancels it when `duration` has passed in this loop's time.
    ///
    /// Returns when `body` has returned, never before: it is a child task, which sees its cancellation as any task does and should end soon
    /// then. A value that it returns in spite of the cancellation is returned; an error that it throws after the time has passed comes out
    /// as `TaskTimedOut`. `RunLoopEnded` comes out in its place when the loop has ended, so that no limit can be kept: `body` is cancelled
    /// then as well. Cancelling the calling task cancels `body`.
    ///
    /// The limit is a one-shot timer in the loop's common modes, gone as soon as `body` has returned. While the loop runs in none of them
    /// the limit does not pass. `body` keeps the isolation it was written in; it need not be on the loop. Any task may call this.
    ///
    /// ```
    /// let answer = try await loop.withTimeout(.seconds(2)) { try await server.ask(question) }
    /// ```
    public func withTimeout<R>(
        _ duration: Duration, isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> sending R
    ) async throws -> sending R { /* DOES CALLOUT */
        let (deadline, clock) = (timeForOthers().advanced(by: duration), clock)
        return try await withoutActuallyEscaping(body) { body in
            _ = isolation  // named, so that this closure has the caller's isolation too
            nonisolated(unsafe) let borrowed = body  // SAFETY: this function waits until the child task that runs it has ended
            let work = BorrowedOperation(borrowed)
            let isOver = await withTaskGroup(of: LimitedTask.self) { group in
                group.addTask {
                    await work.run()
                    return .body
                }
                group.addTask {
                    do { try await clock.sleep(until: deadline) } catch is RunLoopEnded { return .loopEnded } catch { return .body }
                    return .time
                }
                let first = await group.next()!  // there are two
                // Either the timer goes, or the body hears that it should end.
                group.cancelAll()
                await group.waitForAll()
                return first
            }
            return try work.take(orThrow: isOver.error)
        }
    }
}

/// Which of the two tasks was the first to end, and why.
private enum LimitedTask: Sendable {
    case body, time, loopEnded

    /// What to throw for an error of the body's.
    var error: (any Error)? {
        switch self {
        case .body: nil
        case .time: TaskTimedOut()
        case .loopEnded: RunLoopEnded()
        }
    }
}

/// A closure that a child task runs while its caller waits, and what it returned.
private final class BorrowedOperation<R>: @unchecked Sendable {
    // SAFETY: the child task alone touches both until it has ended, and the caller, who waits for that, afterwards.
    private let body: () async throws -> sending R
    private var result: Result<R, any Error>?

    init(_ body: @escaping () async throws -> sending R) { self.body = body }

    func run() async {
        do { result = .success(try await body()) } catch { result = .failure(error) }
    }

    /// The value, or `other` in place of the error when there is one.
    func take(orThrow other: (any Error)?) throws -> sending R {
        nonisolated(unsafe) let taken = result!  // SAFETY: the body has returned, and nobody else can reach its value
        result = nil
        do { return try taken.get() } catch { throw other ?? error }
    }
}
