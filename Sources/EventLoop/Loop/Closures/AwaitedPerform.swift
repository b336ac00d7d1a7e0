internal import CPlatform
import Synchronization

/// One call of `performAsync`: the closure, the task that awaits its value, and its ticket. All in one object, because each further one costs an
/// allocation, and each further generic type a search in the runtime's tables. `@inlinable` code names it, so callers in other modules need no
/// search. The continuation is unsafe: only the thread that moves the state out of `waiting` resumes the task (Tests/Models/awaited.pml).
/// Lifecycle: made by the call, which retains it until it returns; the loop's queues retain it until the closure's turn.
@usableFromInline final class AwaitedPerform<Value>: WorkTicket, @unchecked Sendable {
    // SAFETY: written before the state is `waiting`, and then owned by the thread that ends that state; if it never is, by the calling task.
    @exclusivity(unchecked) private var content:
        (body: (@Sendable () throws -> sending Value)?, continuation: UnsafeContinuation<Value, any Error>?)

    @usableFromInline init(_ body: @escaping @Sendable () throws -> sending Value) {
        content = (body, nil)
        super.init(.starting)
    }

    /// Called once, while the task suspends.
    @usableFromInline func start(
        _ continuation: UnsafeContinuation<Value, any Error>, on loop: RunLoop, _ modes: [RunLoop.Mode], _ file: StaticString, _ line: UInt
    ) {
        let site = CreationSite(file, line)
        content.continuation = continuation
        guard move(from: .starting, to: .waiting) else { return fail(CancellationError(), in: .cancelled) }
        guard loop.enqueueClosure(.perform, modes, { [self] in perform() }, site, self) else { return workWasDropped() }
        // If it was cancelled before it was queued, the cancelling thread did not find it in the queue.
        if state == .cancelled { loop.dequeue(self) }
    }

    /// The task's side of `publish`.
    @usableFromInline func receiveValue() { _ = word.load(ordering: .acquiring) }

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

    override func workWasDropped() { if move(from: .waiting, to: .dropped) { fail(RunLoopEnded(), in: .dropped) } }

    override func workWasAbandoned() {
        // Nil if the task was resumed: code that its executor runs at once may end the thread.
        if state == .begun && content.continuation != nil { fail(RunLoopEnded(), in: .begun) }
    }

    /// Set before the state is `waiting`, and before `start` fails; taken once.
    private func takeContinuation() -> UnsafeContinuation<Value, any Error> { content.continuation.take().unsafelyUnwrapped }

    /// For the thread to which the closure and the task belong, in the state that ended `waiting`.
    private func fail(_ error: any Error, in state: State) {
        content.body = nil
        publish(state)
        cplatform_begin_unrecorded_accesses()
        takeContinuation().resume(throwing: error)
        cplatform_end_unrecorded_accesses()
    }

    /// Orders what this thread has done before everything that the task does after the call. So does the runtime, but ThreadSanitizer cannot see it
    /// if the task is resumed before it has suspended. That is why it does not record the resumption, which accesses the task's memory, either.
    private func publish(_ state: State) { word.store(state, ordering: .releasing) }
}
