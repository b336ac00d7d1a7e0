// The attempts of one `ByteStream.connect`: its lookup, sockets and timers on the loop, and the task that waits.
//
// Lifecycle: the task makes it; `presence`, a source in the mode, retains it until there is an outcome or the loop ends. The outcome
// invalidates every source and timer, and with them goes what they retain.

internal import CStreams
internal import EventLoop

/// Connects to the first of several addresses that answers. Thread-safe.
///
/// Attempts start, succeed and fail on the loop's thread in the mode. Cancellation and the loop's end come from any thread. The first
/// outcome counts; `end` is the only way to one.
final class ConnectionAttempts: Sendable {
    struct Target: Sendable {
        let loop: RunLoop
        let mode: RunLoop.Mode
        let timeout: Duration
        let label: String?
        let file: StaticString
        let line: UInt
        var socket = ByteStream.SocketOptions()
        /// Makes the stream of a connected descriptor, or closes the descriptor and throws.
        let makeStream: @Sendable (Int32) throws(RunLoop.SourceError) -> ByteStream
    }

    private struct State {
        var outcome: Result<ByteStream, any Error>?
        var cancelLookup: (@Sendable () -> Void)?
        /// Keeps the mode from being empty, performs what other threads ask for, and notices the loop's end.
        var presence: RunLoop.CustomSource?
        var deadline: RunLoop.Timer?
        var nextAttempt: RunLoop.Timer?
        /// By the attempt's number; an attempt that is over is removed.
        var attempts: [Int: RunLoop.SocketSource] = [:]
        /// The answer of the resolver, until the loop's thread takes it.
        var answer: Result<[RunLoop.SocketAddress], StreamError>?
        /// Nil before the lookup's end.
        var race: ConnectionRace?
        var isLate = false
    }

    private let state = LoopLock(State())
    private let wait = TaskWait<Result<ByteStream, any Error>>()
    private let target: Target
    private let deadline: RunLoop.Instant

    init(_ target: Target) {
        self.target = target
        deadline = target.loop.clock.now.advanced(by: target.timeout)
    }

    // MARK: The task's side

    /// Once. `lookUp` calls its argument with the addresses, on any thread, and returns what cancels the lookup.
    func connect(
        isolation: isolated (any Actor)? = #isolation, _ lookUp: (@escaping Resolver.Answer) -> @Sendable () -> Void
    ) async throws -> ByteStream { /* DOES CALLOUT */
        try Task.checkCancellation()
        start(lookUp)
        return try await wait.outcome(until: nil, isolation: isolation) { [self] in end(.failure(CancellationError())) }.get()
    }

    private func start(_ lookUp: (@escaping Resolver.Answer) -> @Sendable () -> Void) { /* DOES CALLOUT */
        guard startPresence() else { return end(.failure(RunLoopEnded())) }
        startDeadline()
        let cancel = lookUp { [self] answer in receive(answer) }
        let isOver = state.withLock { state in
            // Not if there is an answer already.
            if state.outcome == nil && state.answer == nil && state.race == nil { state.cancelLookup = cancel }
            return state.outcome != nil
        }
        if isOver { cancel() }
    }

    // What follows adds an item first and stores it then: if there is an outcome in between, the item must be in the loop to be invalidated
    // without a warning.

    /// False if the loop has ended.
    private func startPresence() -> Bool {
        let presence = RunLoop.CustomSource(
            label: "connecting", file: target.file, line: target.line,
            // The outcome invalidates it after it is stored, so this is the loop's end otherwise.
            cancel: { [self] _, _ in end(.failure(RunLoopEnded())) }, perform: { [self] in takeAnswer() })
        if !target.loop.add(presence, forMode: target.mode) { return false }
        keep(presence.invalidate) { $0.presence = presence }
        return true
    }

    /// Stores an item, or invalidates it if there is an outcome.
    private func keep(_ invalidate: () -> Void, _ store: (inout State) -> Void) { /* DOES CALLOUT */
        let isOver = state.withLock { state in
            if state.outcome == nil { store(&state) }
            return state.outcome != nil
        }
        if isOver { invalidate() }
    }

    private func startDeadline() {
        let timer = RunLoop.Timer(fireAt: deadline, label: "limit of a connection", file: target.file, line: target.line) { [self] _ in
            timeOut()
        }
        target.loop.add(timer, forMode: target.mode)
        keep(timer.invalidate) { $0.deadline = timer }
    }

    /// The first call resumes the task. No-op after. Any thread.
    private func end(_ outcome: Result<ByteStream, any Error>) { /* DOES CALLOUT */
        let ended = state.withLock { state -> State? in
            if state.outcome != nil { return nil }
            let ended = state
            state = State(outcome: outcome)
            return ended
        }
        guard let ended else {
            if case .success(let stream) = outcome { stream.close() }
            return
        }
        ended.cancelLookup?()
        for attempt in ended.attempts.values { attempt.invalidate() }
        ended.nextAttempt?.invalidate()
        ended.deadline?.invalidate()
        ended.presence?.invalidate()
        wait.deliver(outcome)
    }

    // MARK: The lookup

    /// Any thread.
    private func receive(_ answer: Result<[RunLoop.SocketAddress], StreamError>) {
        let presence = state.withLock { state -> RunLoop.CustomSource? in
            // The first answer counts.
            if state.outcome != nil || state.answer != nil || state.race != nil { return nil }
            (state.answer, state.cancelLookup) = (answer, nil)
            return state.presence
        }
        guard let presence else { return }
        presence.signal()
        target.loop.wakeUp()
    }

    // MARK: On the loop's thread, in the mode

    private func takeAnswer() { /* DOES CALLOUT */
        let answer = state.withLock { state in
            defer { state.answer = nil }
            return state.answer
        }
        switch answer {
        case nil: break
        case .failure(let error): end(.failure(error))
        case .success(let addresses):
            advance { state in
                state.race = ConnectionRace(addresses)
                return state.race!.begin()
            }
        }
    }

    /// Changes the race, and does what it asks for until it waits.
    private func advance(_ change: (inout State) -> ConnectionRace.Step) { /* DOES CALLOUT */
        var step = state.withLock { state in state.outcome == nil ? change(&state) : .wait }
        while case .start(let attempt, let delays) = step {  // ends: each iteration starts an attempt to another address
            guard let error = startAttempt(attempt, delays: delays) else { return }
            step = state.withLock { state in state.race?.attempt(attempt, failedWith: error) ?? .wait }
        }
        if case .fail(let error) = step { end(.failure(state.withLock({ $0.isLate }) ? StreamError.timedOut : error)) }
    }

    /// Returns an error if the attempt failed at once.
    private func startAttempt(_ attempt: Int, delays: Bool) -> RunLoop.SourceError? { /* DOES CALLOUT */
        let address = state.withLock { $0.race?.addresses[attempt] }
        guard let address else { return nil }
        let source: RunLoop.SocketSource
        do throws(RunLoop.SourceError) {
            // With the limit its own, a connection that exists when the limit passes is a success.
            source = try RunLoop.SocketSource(
                connectingTo: address, from: target.socket.localAddress, timeout: target.loop.clock.now.duration(to: deadline),
                label: target.label, file: target.file, line: target.line,
                prepare: { descriptor throws(RunLoop.SourceError) in try target.socket.setBuffers(of: descriptor) },
                completion: { [self] _, result in attemptEnded(attempt, result) })
        } catch { return error }
        // A source that the kernel refuses to watch fails, and does not call its completion.
        source.onInvalidation { [self] source in if let error = source.failure { attemptEnded(attempt, .failure(error)) } }
        target.loop.add(source, forMode: target.mode)
        keep(source.invalidate) { $0.attempts[attempt] = source }
        if delays { setNextAttempt() }
        return nil
    }

    private func setNextAttempt() {
        let date = target.loop.clock.now.advanced(by: ConnectionRace.delay)
        if let timer = state.withLock({ $0.nextAttempt }) {
            timer.nextFire = date
            return
        }
        let timer = RunLoop.Timer.onDemand(label: "next attempt", file: target.file, line: target.line) { [self] _ in
            advance { state in state.race?.delayHasPassed() ?? .wait }
        }
        target.loop.add(timer, forMode: target.mode)
        timer.nextFire = date
        keep(timer.invalidate) { $0.nextAttempt = timer }
    }

    private func attemptEnded(_ attempt: Int, _ result: Result<Int32, RunLoop.SourceError>) { /* DOES CALLOUT */
        _ = state.withLock { $0.attempts.removeValue(forKey: attempt) }
        switch result {
        case .success(let descriptor): connected(attempt, descriptor)
        case .failure(let error): advance { state in state.race?.attempt(attempt, failedWith: error) ?? .wait }
        }
    }

    private func connected(_ attempt: Int, _ descriptor: Int32) { /* DOES CALLOUT */
        if state.withLock({ $0.outcome != nil }) {
            cstreams_close(descriptor)
            return
        }
        // Made here and not by the task, so that the mode is not empty in between.
        do throws(RunLoop.SourceError) { end(.success(try target.makeStream(descriptor))) } catch {
            // The peer has reset the connection already, for example. Another address may do better.
            if error == .loopEnded { return end(.failure(RunLoopEnded())) }
            advance { state in state.race?.attempt(attempt, failedWith: error) ?? .wait }
        }
    }

    /// The limit has passed. Attempts in progress have the same limit: each reports now that it has timed out, or that it is connected.
    private func timeOut() { /* DOES CALLOUT */
        let isOver = state.withLock { state in
            state.isLate = true
            return state.race?.close() ?? true
        }
        if isOver { end(.failure(StreamError.timedOut)) }
    }
}
