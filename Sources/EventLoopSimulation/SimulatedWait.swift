// A task that waits for something of the simulated world.

/// The first result counts.
final class SimulatedWait<Value: Sendable>: @unchecked Sendable {
    // SAFETY: the run's thread alone uses it.

    private var continuation: UnsafeContinuation<Value, any Error>?
    /// Until the task has it: a stream that the program releases must not live on here.
    private var result: Result<Value, any Error>?
    private(set) var isOver = false

    func begin(_ continuation: UnsafeContinuation<Value, any Error>) {
        self.continuation = continuation
        resume()
    }

    func end(_ result: Result<Value, any Error>) {
        if isOver { return }
        isOver = true
        self.result = result
        resume()
    }

    private func resume() {
        guard let continuation, let result else { return }
        (self.continuation, self.result) = (nil, nil)
        continuation.resume(with: result)
    }
}
