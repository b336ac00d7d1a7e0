internal import CPlatform
import Synchronization

/// The loop's thread exited before the closure was performed, or inside it.
public struct RunLoopEnded: Error, Sendable, CustomStringConvertible {
    /// Makes the error: for tests of code that catches it.
    public init() {}
    public var description: String { "the run loop has ended, because its thread has" }
}
/// The time to wait passed before the closure had begun; it was withdrawn and will not be performed.
public struct PerformTimedOut: Error, Sendable, CustomStringConvertible {
    /// Makes the error: for tests of code that catches it.
    public init() {}
    public var description: String { "the run loop did not begin the closure in time" }
}

extension RunLoop {
    /// Performs `body` on the owning thread and returns its value; inline, ahead of anything queued, when the caller is already there.
    ///
    /// Blocks the calling thread without running its loop. Throws `RunLoopEnded` when the loop's thread exits first, or inside `body`; else what
    /// `body` throws. The closure is released before the caller resumes. With a `timeout` (in real time) that passes before `body` has begun, `body`
    /// is withdrawn and `PerformTimedOut` thrown. It never returns while the loop is not run in any of `modes` and there is no timeout. An empty list
    /// of modes is a precondition failure: the call could never return. See `performSelector:onThread:withObject:waitUntilDone:modes:`.
    @available(*, noasync, message: "performAndWait blocks the thread; write `try await performAsync`, which suspends the task")
    public func performAndWait<R>(
        inModes modes: [Mode] = Mode.onlyCommon, timeout: Duration? = nil, file: StaticString = #fileID, line: UInt = #line,
        _ body: @Sendable () throws -> sending R
    ) throws -> sending R { /* DOES CALLOUT */
        precondition(
            !modes.isEmpty, "performAndWait without modes could never return; name a mode, or leave the list out for the common modes")
        shared.preconditionOurs()
        if isCurrent {
            if hasEnded.load(ordering: .relaxed) { throw RunLoopEnded() }
            return try body()
        }
        // The request releases the closure before it opens its latch, so the closure does not outlive this call.
        // SAFETY: the closure's value is sent, and has come here only.
        nonisolated(unsafe) let value = try withoutActuallyEscaping(body) { body -> R in
            let context = ClosureWords(body: body).context
            let request = PerformRequest(body)
            guard enqueueClosure(.perform, modes, { request.perform() }, CreationSite(file, line), request) else {
                request.withdraw()
                throw RunLoopEnded()
            }
            let deadline = timeout.map { RunLoop.Instant.now.advanced(by: $0) }
            if !request.latch.wait(until: deadline) {
                if request.withdraw() {
                    dequeue(request)
                    throw PerformTimedOut()
                }
                _ = request.latch.wait(until: nil)  // it has begun, so this waits for its end
            }
            // `withoutActuallyEscaping` traps if the closure is referenced elsewhere, and the frames of an abandoned thread reference it.
            if request.state == .abandoned { cplatform_release_all_but_one(context) }
            if request.state != .done { throw RunLoopEnded() }
            return try request.takeValue()
        }
        return value
    }

    // `@inlinable`, so that it is specialized in the caller's module: a sixth of its instructions (docs/performance.md, W18).
    /// As `performAndWait`, suspending instead of blocking.
    ///
    /// Cancelled before `body` has begun, `body` is withdrawn and `CancellationError` thrown. Called on the owning thread it performs `body` at once.
    @inlinable
    public func performAsync<R>(
        inModes modes: [Mode] = Mode.onlyCommon, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable () throws -> sending R
    ) async throws -> sending R { /* DOES CALLOUT */
        if try performsAtOnce(modes) { return try body() }
        let call = AwaitedPerform(body)
        defer { call.receiveValue() }
        // SAFETY: the closure's value is sent, and has come here only.
        nonisolated(unsafe) let value = try await withTaskCancellationHandler {
            try await withUnsafeThrowingContinuation { call.start($0, on: self, modes, file, line) }
        } onCancel: {
            call.cancel(on: self)
        }
        return value
    }

    /// The checks of `performAsync`. True on the owning thread, unless the loop has ended.
    @usableFromInline func performsAtOnce(_ modes: [Mode]) throws -> Bool {
        precondition(
            !modes.isEmpty, "performAsync without modes could never return; name a mode, or leave the list out for the common modes")
        shared.preconditionOurs()
        try Task.checkCancellation()
        return isCurrent && !hasEnded.load(ordering: .relaxed)
    }
}

/// A closure, a function and its context, in a struct: one that is passed as a generic value is wrapped in another closure.
private struct ClosureWords<R> {
    let body: @Sendable () throws -> sending R
    /// The object with the values that the closure has captured.
    var context: UnsafeMutableRawPointer? {
        withUnsafeBytes(of: self) { $0.load(fromByteOffset: MemoryLayout<UInt>.size, as: UnsafeMutableRawPointer?.self) }
    }
}

/// A closure that a thread waits for: performed once, or withdrawn, or dropped with its loop.
final class PerformRequest<Value>: WorkTicket, @unchecked Sendable {
    // SAFETY: `body` belongs to the thread that moves the state out of `waiting`. That thread writes `result` before it opens the latch.
    private var body: (@Sendable () throws -> sending Value)?
    private var result: Result<Value, any Error>?
    let latch = Latch()

    init(_ body: @escaping @Sendable () throws -> sending Value) {
        self.body = body
        super.init()
    }

    func perform() { /* DOES CALLOUT */
        guard move(from: .waiting, to: .begun) else { return }
        var body = self.body.take()
        do { result = .success(try body!()) } catch { result = .failure(error) }  // it is there until the request is over
        body = nil
        end(.done, from: .begun)
    }

    /// When the request is done; called once.
    func takeValue() throws -> sending Value {
        nonisolated(unsafe) let taken = result.take()!  // SAFETY: the closure has returned
        return try taken.get()
    }

    /// True when the closure had not begun, and will not.
    @discardableResult
    func withdraw() -> Bool { end(.cancelled, from: .waiting) }
    override func workWasDropped() { end(.dropped, from: .waiting) }
    override func workWasAbandoned() { end(.abandoned, from: .begun) }

    @discardableResult
    private func end(_ new: State, from old: State) -> Bool {
        guard move(from: old, to: new) else { return false }
        // Before the waiter wakes, because the closure may be on its stack.
        body = nil
        latch.open()
        return true
    }
}
