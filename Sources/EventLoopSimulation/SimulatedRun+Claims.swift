// What a program claims of its run: what always holds, and what will hold within a time. Looked at after each step.

internal import CSimulation

extension SimulatedRun {
    struct Claim {
        var text: String
        var place: String
        var holds: @Sendable () -> Bool
    }

    func always(_ claim: Claim) {
        claims.append(claim)
        check(claim)
    }

    func eventually(_ claim: Claim, within limit: Duration) async throws {
        if claim.holds() { return }
        let wait = EventualClaim(claim, incarnation: csim_current_process(raw))
        waits.append(wait)
        // Weak: what the claim holds must not live to the end of the limit. `waits` holds it while the task waits.
        schedule(after: limit.wholeNanoseconds) { [self, weak wait] in
            // A task of a crashed process does not wait any more.
            guard let wait, !wait.isOver, !hasCrashed(wait.incarnation) else { return }
            let claim = wait.claim
            if claim.holds() { return wait.end() }
            fail(.invariant, "\"\(claim.text)\" (\(claim.place)) did not hold within \(limit)", identity: claim.place)
        }
        await withTaskCancellationHandler {
            await withUnsafeContinuation { wait.begin($0) }
        } onCancel: {
            wait.end()
        }
        waits.removeAll { $0 === wait }
        if Task.isCancelled && !wait.didHold { throw CancellationError() }
    }

    private func check(_ claim: Claim) {
        if !claim.holds() { fail(.invariant, "\"\(claim.text)\" (\(claim.place)) does not hold", identity: claim.place) }
    }

    func afterStep() {
        for claim in claims where problem == nil { check(claim) }
        for wait in waits where !wait.isOver && !hasCrashed(wait.incarnation) && wait.claim.holds() {
            wait.didHold = true
            wait.end()
        }
    }
}

/// A wait of `eventually`. On the run's thread only.
final class EventualClaim: @unchecked Sendable {
    // SAFETY: the run's thread alone uses it; the tasks of a simulation have no other.

    let claim: SimulatedRun.Claim
    /// Of the process of the task that waits; 0 if it has none.
    let incarnation: UInt32
    private var continuation: UnsafeContinuation<Void, Never>?
    private(set) var isOver = false
    var didHold = false

    init(_ claim: SimulatedRun.Claim, incarnation: UInt32) { (self.claim, self.incarnation) = (claim, incarnation) }

    func begin(_ continuation: UnsafeContinuation<Void, Never>) {
        if isOver { continuation.resume() } else { self.continuation = continuation }
    }

    func end() {
        isOver = true
        continuation?.resume()
        continuation = nil
    }
}
