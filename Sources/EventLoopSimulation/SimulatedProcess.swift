// Tasks that can be crashed together, and what they have stored.

internal import CSimulation
internal import EventLoopStreams

/// A process of the simulated program. It is used inside the simulation only.
public final class SimulatedProcess: Sendable {
    private struct State {
        /// The number under which the scheduler knows the tasks of this start.
        var incarnation: UInt32 = 0
        var hasCrashed = false
        /// What became of `main`; nil while it runs.
        var result: Result<Void, any Error>?
        /// What the `main` of this start has thrown.
        var mainError: MainError?
        var waiters: [EndWaiter] = []
        var listeners: [UInt16: SimulatedListener] = [:]
        var servers: [StreamServer] = []
        var last: [String: Stored] = [:]
        var synced: [String: Stored] = [:]
        var stores: UInt64 = 0
    }
    private struct Stored {
        var bytes: [UInt8]
        /// Grows with each `store`.
        var version: UInt64
    }

    /// Its name, which is also its name in the network.
    public let name: String
    private let main: @Sendable (SimulatedProcess) async throws -> Void
    // SAFETY: the run's thread alone uses both; each call checks that.
    nonisolated(unsafe) private weak var ownRun: SimulatedRun?
    nonisolated(unsafe) private var state = State()

    init(_ name: String, _ run: SimulatedRun, _ main: @escaping @Sendable (SimulatedProcess) async throws -> Void) {
        self.name = name
        ownRun = run
        self.main = main
    }

    private func run(_ call: StaticString) -> SimulatedRun {
        guard let ownRun, ownRun.isCurrent else {
            preconditionFailure("\(call) was called outside its simulation; a SimulatedProcess is for the tasks of the same run")
        }
        return ownRun
    }

    // MARK: Life

    func start() {
        let run = run("SimulatedProcess.restart")
        let incarnation = run.newIncarnation(of: self)
        state.incarnation = incarnation
        state.hasCrashed = false
        state.result = nil
        state.mainError = nil
        csim_begin_process(run.raw, incarnation)
        startTask("main") { [self] in
            do {
                try await main(self)
                ended(.success(()), incarnation)
            } catch {
                ended(.failure(error), incarnation)
            }
        }
        csim_end_process(run.raw)
    }

    private func ended(_ result: Result<Void, any Error>, _ incarnation: UInt32) {
        guard let ownRun, !state.hasCrashed, state.incarnation == incarnation else { return }
        state.result = result
        // A task of a crashed process never learns of it.
        let waiters = state.waiters.filter { !ownRun.hasCrashed($0.incarnation) }
        state.waiters = []
        if case .failure(let error) = result {
            let mainError = MainError(error, in: name)
            mainError.isTaken = !waiters.isEmpty
            state.mainError = mainError
            ownRun.mainThrew(mainError)
        }
        for waiter in waiters { waiter.wait.end(result) }
    }

    var hasCrashed: Bool { state.hasCrashed }
    var incarnation: UInt32 { state.incarnation }
    var listeners: [UInt16: SimulatedListener] {
        get { state.listeners }
        set { state.listeners = newValue }
    }
    var servers: [StreamServer] {
        get { state.servers }
        set { state.servers = newValue }
    }

    /// Its servers do nothing any more, not even at the end of their loop.
    func abandonServers() {
        let servers = state.servers
        state.servers = []
        for server in servers { server.abandon() }
    }

    /// Whether it has not crashed, and `main` has not returned, or it has listeners or tasks.
    public var isRunning: Bool {
        let run = run("SimulatedProcess.isRunning")
        if state.hasCrashed { return false }
        return state.result == nil || !state.listeners.isEmpty || csim_live_tasks(run.raw, state.incarnation) > 0
    }

    /// Ends the process where it is. None of its tasks runs on, not even their `defer`s; its listeners are gone, its connections are reset; what
    /// it has stored and synced stays. A task that crashes its own process runs to its next suspension. Nothing if it has crashed.
    public func crash() {
        let run = run("SimulatedProcess.crash")
        if state.hasCrashed { return }
        state.hasCrashed = true
        run.trace?.say("process \"\(name)\" crashes")
        csim_crash(run.raw, state.incarnation)
        state.listeners = [:]
        abandonServers()
        run.world.network.processCrashed(self)
        for name in state.last.keys.sorted() where state.last[name]?.version != state.synced[name]?.version {
            if run.drawChance(0.5) { state.synced[name] = state.last[name] } else { state.last[name] = state.synced[name] }
        }
        let waiters = state.waiters
        state.waiters = []
        for waiter in waiters { waiter.wait.end(.failure(SimulatedCrash(process: name))) }
    }

    /// Calls `main` again, with what is stored. A process that is running crashes first.
    public func restart() {
        let run = run("SimulatedProcess.restart")
        crash()
        run.trace?.say("process \"\(name)\" starts again")
        start()
    }

    /// Returns when the `main` that runs now has returned, or throws what it threw. Throws `SimulatedCrash` if the process crashes first, or has
    /// crashed; `CancellationError` if the task is cancelled.
    public func waitForEnd() async throws {
        let waiter = EndWaiter(incarnation: csim_current_process(run("SimulatedProcess.waitForEnd").raw))
        if state.hasCrashed { throw SimulatedCrash(process: name) }
        if let result = state.result {
            state.mainError?.isTaken = true
            return try result.get()
        }
        state.waiters.append(waiter)
        try await withTaskCancellationHandler {
            try await withUnsafeThrowingContinuation { waiter.wait.begin($0) }
        } onCancel: {
            forget(waiter)
        }
    }

    private func forget(_ waiter: EndWaiter) {
        state.waiters.removeAll { $0.wait === waiter.wait }
        waiter.wait.end(.failure(CancellationError()))
    }

    // MARK: Storage

    /// Keeps bytes under a name. They survive a crash if a `sync` that began afterwards has returned. Each name whose last value was not synced
    /// has after a crash, by the seed, that value whole, or the last synced one.
    public func store(_ bytes: [UInt8], named name: String) {
        _ = run("SimulatedProcess.store")
        state.stores += 1
        state.last[name] = Stored(bytes: bytes, version: state.stores)
    }

    /// Returns when everything that was stored before is safe, or the process has crashed. Takes 100 µs to 1 ms of virtual time.
    public func sync() async {
        let run = run("SimulatedProcess.sync")
        let (values, incarnation) = (state.last, state.incarnation)
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            run.schedule(after: run.draw(.microseconds(100)...(.milliseconds(1)))) { [self] in
                // Another one that began later may have been faster.
                if !state.hasCrashed && state.incarnation == incarnation {
                    state.synced.merge(values) { $0.version > $1.version ? $0 : $1 }
                }
                continuation.resume()
            }
        }
    }

    /// The last value that was stored under a name and has survived; nil if there is none.
    public func stored(named name: String) -> [UInt8]? {
        _ = run("SimulatedProcess.stored")
        return state.last[name]?.bytes
    }
}

/// What a `main` has thrown. The run and the process share it. It outlives a restart.
final class MainError {
    let processName: String
    let error: any Error
    /// A task has learned of it from `waitForEnd`, so the run does not fail with it.
    var isTaken = false

    init(_ error: any Error, in processName: String) { (self.error, self.processName) = (error, processName) }
}

/// A task that waits for the end of a process.
private struct EndWaiter {
    /// Of the task's process; 0 if it has none.
    let incarnation: UInt32
    let wait = SimulatedWait<Void>()
}
