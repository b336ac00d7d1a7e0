// Lifecycle: the source's handler retains the channel, and the iterator retains its reader. The channel removes the source when the last copy of the
// iterator is released, or its task is cancelled. If the source becomes invalid first, it ends the channel.

/// Passes what a source reports to a task: holds an element, or a task that waits for one, or the end. Memory is limited: new elements are merged
/// into the one that waits (`post`), or the source reports only when the task waits (`demand`), or only a waiting task gets them (`deliver`).
final class SingleElementChannel<Element: Sendable>: Sendable {
    // Checked, although resumed once by construction: of unsafe ones ThreadSanitizer sees the reads but not the runtime's locks (Swift 6.3).
    private typealias Waiter = CheckedContinuation<Element?, any Error>

    private struct State: Sendable {
        var element: Element?
        var waiter: Waiter?
        var isEnded = false
        /// Thrown once, after the last element.
        var failure: (any Error)?
        var removal: (@Sendable () -> Void)?
        var demand: (@Sendable () -> Void)?
    }
    private let state = LoopLock(State())

    // MARK: The source's side
    /// Sets how the channel removes the source, at once if it has ended, and how it asks a source that reports only on demand.
    func connect(demand: (@Sendable () -> Void)? = nil, removal: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        let isEnded = state.withLock { state in
            if !state.isEnded { (state.removal, state.demand) = (removal, demand) }
            return state.isEnded
        }
        if isEnded { removal() }
    }

    /// Connects the channel to a source that `make` makes, and adds the source to a mode of a loop: each ends with the other. Only the loop retains
    /// the source, which ends with the loop. If `make` fails, or the loop refuses the source, the task gets the error.
    func connect<S: RunLoop.Source>(
        on loop: RunLoop, _ mode: RunLoop.Mode, demand: (@Sendable (S) -> Void)? = nil, _ make: () throws -> S
    ) { /* DOES CALLOUT */
        do {
            let source = try make()
            source.addInvalidation { [self] in end(throwing: $0.failure ?? RunLoopEnded()) }
            var ask: (@Sendable () -> Void)?
            if let demand { ask = { [weak source] in if let source { demand(source) } } }
            connect(demand: ask) { [weak source] in source?.invalidate() }
            if !loop.addIfPossible(source, forMode: mode) { source.invalidate() }
        } catch { end(throwing: error) }
    }

    /// Passes an element to the waiting task, or stores it, or merges it into the stored one. Thread-safe.
    func post(_ element: Element, merging merge: (inout Element, Element) -> Void) {
        let waiter = state.withLock { state -> Waiter? in
            if state.isEnded { return nil }
            if let waiter = state.waiter.take() { return waiter }
            if state.element == nil { state.element = element } else { merge(&state.element!, element) }
            return nil
        }
        waiter?.resume(returning: element)
    }

    /// Passes the element that `take` returns to the waiting task, if one waits. If `take` returns nil, the task waits on, as if it had asked again.
    /// Returns whether the task got an element. `take` must not call out: if it ended the thread, the task would wait for ever. Thread-safe.
    func deliver(_ take: () -> Element?) -> Bool { /* DOES CALLOUT */
        guard let waiter = state.withLock({ $0.waiter.take() }) else { return false }
        guard let element = take() else {
            wait(waiter)
            return false
        }
        waiter.resume(returning: element)
        return true
    }

    /// Ends the channel. The task gets the stored element, then `failure` if there is one, then the end. Thread-safe.
    func end(throwing failure: (any Error)? = nil) {
        // The closures are released outside the lock, because they refer to the source.
        let released = state.withLock { state -> State? in
            if state.isEnded { return nil }
            defer { state = State(element: state.element, isEnded: true, failure: state.waiter == nil ? failure : nil) }
            return state
        }
        if let failure { released?.waiter?.resume(throwing: failure) } else { released?.waiter?.resume(returning: nil) }
    }

    // MARK: The task's side
    /// Drops the stored element, ends the channel, and removes the source. Thread-safe.
    func cancel() { /* DOES CALLOUT */
        let released = state.exchange(State(isEnded: true))
        released?.removal?()
        released?.waiter?.resume(returning: nil)
    }

    /// The next element; nil at the end. Cancelling the task ends the channel. One task at a time.
    func next(isolation: isolated (any Actor)?) async throws -> Element? { /* DOES CALLOUT */
        try await withTaskCancellationHandler(
            operation: { try await withCheckedThrowingContinuation(isolation: isolation) { waiter in wait(waiter) } },
            onCancel: { cancel() }, isolation: isolation)
    }

    /// The only element. If the channel ends without one, the task was cancelled.
    func only(isolation: isolated (any Actor)?) async throws -> Element { /* DOES CALLOUT */
        guard let element = try await next(isolation: isolation) else { throw CancellationError() }
        return element
    }

    private func wait(_ waiter: Waiter) { /* DOES CALLOUT */
        var demand: (@Sendable () -> Void)?
        let answer = state.withLock { state -> Result<Element?, any Error>? in
            precondition(state.waiter == nil, "two tasks use one iterator at the same time; make an iterator for each task")
            if let element = state.element.take() { return .success(element) }
            if let failure = state.failure.take() { return .failure(failure) }
            if state.isEnded { return .success(nil) }
            state.waiter = waiter
            demand = state.demand
            return nil
        }
        if let answer { waiter.resume(with: answer) } else { demand?() }
    }
}

/// Shared by the copies of an iterator. The release of the last copy cancels the channel.
final class ChannelReader<Element: Sendable>: Sendable {
    let channel: SingleElementChannel<Element>
    init(_ channel: SingleElementChannel<Element> = SingleElementChannel(), connect: (SingleElementChannel<Element>) -> Void = { _ in }) {
        self.channel = channel
        connect(channel)
    }
    deinit { channel.cancel() }
}
