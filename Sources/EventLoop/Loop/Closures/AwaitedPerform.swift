// A closure on a loop's thread whose value a task awaits.

internal import CPlatform
import Synchronization

/// Who completes an `AwaitedPerform`. Only the thread that moves it out of `waiting` resumes the task.
private enum AwaitedPerformState: UInt8, AtomicRepresentable {
    /// The task does not wait yet.
    case starting
    /// The task waits, and the closure has not begun.
    case waiting
    case begun
    /// The task was cancelled before the closure began.
    case cancelled
    /// The loop has refused the closure, or has ended.
    case dropped
}

/// One call of `performAsync`: the closure, the task that awaits its value, and its ticket in the loop's queues.
///
/// Everything is in one object, because each further object costs an allocation, and each further generic type a search in the runtime's
/// tables. `@inlinable` code uses it, so that a caller in another module names its type without such a search. The value goes straight from
/// the closure to the task. The continuation is an unsafe one, because the state already says who resumes the task, and that is checked
/// exhaustively: Tests/Models/awaited.pml.
///
/// Lifecycle: made by the call, which retains it until it returns; the loop's queues retain it until the closure's turn.
@usableFromInline final class AwaitedPerform<Value>: WorkTicket, @unchecked Sendable {
    // SAFETY: `state` is atomic. `content` is written before the state is `waiting`, and then belongs to the thread that
    // ends that state. If the state never becomes `waiting`, it belongs to the calling task.

    private let state = Atomic(AwaitedPerformState.starting)
    @exclusivity(unchecked) private var content:
        (body: (@Sendable () throws -> sending Value)?, continuation: UnsafeContinuation<Value, any Error>?)

    @usableFromInline init(_ body: @escaping @Sendable () throws -> sending Value) { content = (body, nil) }

    override var isWaiting: Bool { state.load(ordering: .acquiring) == .waiting }

    /// Queues the closure. Called once, while the task suspends.
    @usableFromInline func start(
        _ continuation: UnsafeContinuation<Value, any Error>, on loop: RunLoop, _ modes: [RunLoop.Mode], _ file: StaticString, _ line: UInt
    ) {
        let site = CreationSite(file, line)
        content.continuation = continuation
        guard move(from: .starting, to: .waiting) else { return fail(CancellationError(), in: .cancelled) }
        guard loop.enqueuePerform(modes, { [self] in perform() }, site, self) else { return workWasDropped() }
        // If it was cancelled before it was queued, the cancelling thread did not find it in the queue.
        if state.load(ordering: .acquiring) == .cancelled { loop.dequeue(self) }
    }

    /// The task's side of `publish`.
    @usableFromInline func receiveValue() { _ = state.load(ordering: .acquiring) }

    /// Called by the loop, at the closure's turn.
    private func perform() { /* DOES CALLOUT */
        guard move(from: .waiting, to: .begun) else { return }
        var body = content.body.take()
        do {
            let value = try body!()  // it is there until the closure begins
            // Before the task resumes, because the closure may hold what the task wants released.
            body = nil
            publish(.begun)
            cplatform_begin_unrecorded_accesses()
            takeContinuation().resume(returning: value)
            cplatform_end_unrecorded_accesses()
        } catch {
            body = nil
            fail(error, in: .begun)
        }
    }

    /// The task is cancelled. No-op if the closure has begun or the call is over. Thread-safe.
    @usableFromInline func cancel(on loop: RunLoop) {
        // If the task does not wait yet, `start` finds that it was cancelled.
        if move(from: .starting, to: .cancelled) { return }
        guard move(from: .waiting, to: .cancelled) else { return }
        loop.dequeue(self)
        fail(CancellationError(), in: .cancelled)
    }

    override func workWasDropped() {
        if move(from: .waiting, to: .dropped) { fail(RunLoopEnded(), in: .dropped) }
    }

    override func workWasAbandoned() {
        // Nil if the task was resumed: code that its executor runs at once may end the thread.
        if state.load(ordering: .acquiring) == .begun && content.continuation != nil { fail(RunLoopEnded(), in: .begun) }
    }

    /// Set before the state is `waiting`, and before `start` fails; taken once.
    private func takeContinuation() -> UnsafeContinuation<Value, any Error> { content.continuation.take().unsafelyUnwrapped }

    /// Releases the closure and resumes the task. For the thread to which they belong, in the state that ended `waiting`.
    private func fail(_ error: any Error, in state: AwaitedPerformState) {
        content.body = nil
        publish(state)
        cplatform_begin_unrecorded_accesses()
        takeContinuation().resume(throwing: error)
        cplatform_end_unrecorded_accesses()
    }

    /// Orders what this thread has done before everything that the task does after the call. The runtime orders them too, but
    /// ThreadSanitizer cannot see that if the task is resumed before it has suspended. For the same reason it does not record the
    /// resumption, which is compiled into this module, and reads and writes the task's memory.
    private func publish(_ state: AwaitedPerformState) { self.state.store(state, ordering: .releasing) }

    /// False if the state is not `old`.
    private func move(from old: AwaitedPerformState, to new: AwaitedPerformState) -> Bool {
        state.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing).exchanged
    }
}
