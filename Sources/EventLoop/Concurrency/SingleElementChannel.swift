// How what a loop's sources report reaches a task: the one mechanism behind every sequence that a loop offers.
//
// A channel holds one element at most. What is reported while the task is busy is merged into it, so a slow task costs no memory; or
// nothing is reported then, because the source is armed only when the task has come to wait (`demand`). A sequence chooses one of the two
// and says which. What must not be lost is handed over to a task that waits, or not at all (`hand`).
//
// Lifecycle: the source's handler holds the channel, the iterator holds its reader. When the last copy of the iterator goes, or its task is
// cancelled, the channel removes the source; when the source goes first, it ends the channel.

import Synchronization

/// One element, or somebody who waits for one, or the end.
final class SingleElementChannel<Element: Sendable>: Sendable {
    // Checked, though each is resumed once by construction: what an unsafe one reads is compiled into this module, where ThreadSanitizer
    // sees the reads, and not how the runtime orders them (Swift 6.3).
    private typealias Waiter = CheckedContinuation<Element?, any Error>

    private struct State: Sendable {
        var element: Element?
        var waiter: Waiter?
        var isEnded = false
        /// Thrown once, after the last element.
        var failure: (any Error)?
        /// Takes the source away.
        var removal: (@Sendable () -> Void)?
        /// Has the source report again.
        var demand: (@Sendable () -> Void)?
    }
    private let state = ForkAwareMutex(State())

    // MARK: The source's side

    /// Says how the source is taken away, and how it is asked for more when it reports only on demand. On a channel that has ended it is
    /// taken away at once.
    func connect(demand: (@Sendable () -> Void)? = nil, removal: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        let isEnded = state.withLock { state in
            if !state.isEnded { (state.removal, state.demand) = (removal, demand) }
            return state.isEnded
        }
        if isEnded { removal() }
    }

    /// Hands an element over, or merges it into the one that waits to be taken. Thread-safe.
    func post(_ element: Element, merging merge: (inout Element, Element) -> Void) {
        let waiter = state.withLock { state -> Waiter? in
            if state.isEnded { return nil }
            if let waiter = state.waiter {
                state.waiter = nil
                return waiter
            }
            if state.element == nil { state.element = element } else { merge(&state.element!, element) }
            return nil
        }
        waiter?.resume(returning: element)
    }

    /// Hands an element to the task that waits for it. False when none does (any more): the element is still the caller's. Thread-safe.
    func hand(_ element: Element) -> Bool {
        let waiter = state.withLock { state in
            defer { state.waiter = nil }
            return state.waiter
        }
        waiter?.resume(returning: element)
        return waiter != nil
    }

    /// Nothing more will come: the task gets what is left, then `failure` if there is one, then the end. Thread-safe.
    func end(throwing failure: (any Error)? = nil) {
        let (waiter, released) = state.withLock { state -> (Waiter?, State?) in
            if state.isEnded { return (nil, nil) }
            let (waiter, released) = (state.waiter, state)
            state = State(element: state.element, isEnded: true, failure: waiter == nil ? failure : nil)
            return (waiter, released)
        }
        // The closures are let go of outside the lock: they hold the source.
        withExtendedLifetime(released) {}
        if let failure { waiter?.resume(throwing: failure) } else { waiter?.resume(returning: nil) }
    }

    // MARK: The task's side

    /// The task wants no more: what is left is dropped, and the source goes. Thread-safe.
    func cancel() { /* DOES CALLOUT */
        let released = state.withLockUnlessInherited { state in
            defer { state = State(isEnded: true) }
            return state
        }
        released?.removal?()
        released?.waiter?.resume(returning: nil)
    }

    /// The next element; nil at the end, and when the task is cancelled, which is the end as well. One task at a time.
    func next(isolation: isolated (any Actor)?) async throws -> Element? { /* DOES CALLOUT */
        try await withTaskCancellationHandler(
            operation: {
                try await withCheckedThrowingContinuation(isolation: isolation) { waiter in wait(waiter) }
            }, onCancel: { cancel() }, isolation: isolation)
    }

    private enum Answer: Sendable {
        case now(Element?)
        case failed(any Error)
        case later(demand: (@Sendable () -> Void)?)
    }

    private func wait(_ waiter: Waiter) { /* DOES CALLOUT */
        let answer = state.withLock { state -> Answer in
            precondition(state.waiter == nil, "two tasks ask one iterator for its next element; give each task an iterator of its own")
            if let element = state.element {
                state.element = nil
                return .now(element)
            }
            if let failure = state.failure {
                state.failure = nil
                return .failed(failure)
            }
            if state.isEnded { return .now(nil) }
            state.waiter = waiter
            return .later(demand: state.demand)
        }
        switch answer {
        case .now(let element): waiter.resume(returning: element)
        case .failed(let failure): waiter.resume(throwing: failure)
        case .later(let demand): demand?()
        }
    }
}

/// What an iterator and its copies share: the last one to go cancels.
final class ChannelReader<Element: Sendable>: Sendable {
    let channel: SingleElementChannel<Element>

    init(_ channel: SingleElementChannel<Element>) { self.channel = channel }

    deinit { channel.cancel() }
}

/// Tells when the closure that holds it is let go of.
final class ReleaseNotifier: Sendable {
    private let body: @Sendable () -> Void

    init(_ body: @escaping @Sendable () -> Void) { self.body = body }

    deinit { body() }
}
