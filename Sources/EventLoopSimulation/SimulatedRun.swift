// One run of a program: one seed, or one schedule.
//
// Lifecycle of a run: the caller of `simulate` makes it, with its first task, which inherits the caller's task-locals; then a thread of its own
// drives it to its end, releases it, and resumes the caller. Whatever of the program has not ended by then never runs on.

internal import CSimulation
internal import EventLoop
import Synchronization

final class SimulatedRun: @unchecked Sendable {
    // SAFETY: the run's thread alone touches the variables once it has started; before, the caller does, and again after the thread has ended.
    // `cancel` and `noteIssue` use the lock.

    struct Settings: Sendable {
        var file: String
        var line: Int
        var seed: UInt64
        var strategy: SimulationStrategy
        var stepLimit: Int
        var allowsEscapes: Bool
        var choices: [csim_choice]?
        /// A choice that is not possible ends the run.
        var isStrict = false
        var records = false
        var traces = false
    }

    let settings: Settings
    let raw: OpaquePointer
    /// Nil once the run has ended: a task that never runs on may hold the run.
    private var body: (@Sendable (SimulatedWorld) async throws -> Void)?

    // MARK: The program

    private(set) var world: SimulatedWorld!
    var processes: [SimulatedProcess] = []
    /// By the number that the scheduler knows: each start of a process has its own.
    var incarnations: [UInt32: SimulatedProcess] = [:]
    private var nextIncarnation: UInt32 = 0
    private var events: [UInt64: () -> Void] = [:]
    private var nextEvent: UInt64 = 0
    private(set) var simulatedLoop: RunLoop?
    private var clock: RunLoop.ManualClock?
    private var loopsLife: RunLoop.KeepAlive?
    var claims: [Claim] = []
    var waits: [EventualClaim] = []

    // MARK: Its end

    private(set) var problem: Problem?
    private var bodyResult: Result<Void, any Error>?
    private var mainErrors: [MainError] = []
    private(set) var escapes: [String: Int] = [:]
    private var escapeCount = 0
    private(set) var wasCancelled = false
    /// The program does nothing any more. Its thread releases what is left.
    private var isFinished = false
    let trace: TraceWriter?
    private(set) var steps = 0
    private(set) var digest: UInt64 = 0
    private(set) var choices: [csim_choice] = []

    private struct Shared {
        var isCancelled = false
        var isOver = false
        var issue: Problem?
        var continuation: CheckedContinuation<Void, Never>?
    }
    private let shared = Mutex(Shared())

    init(_ settings: Settings, _ body: @escaping @Sendable (SimulatedWorld) async throws -> Void) {
        self.settings = settings
        self.body = body
        trace = settings.traces ? TraceWriter() : nil
        let (strategy, changes): (csim_strategy, Int) =
            switch settings.strategy.strategy(for: settings.seed) {
            case .random, .mixed: (CSIM_RANDOM, 0)
            case .priorities(let changes): (CSIM_PRIORITIES, changes)
            case .firstComeFirstServed: (CSIM_FIRST_COME, 0)
            }
        var callbacks = Self.callbacks
        raw = withUnsafePointer(to: &callbacks) {
            csim_run_create(
                $0, settings.seed, Int32(strategy.rawValue), Int32(clamping: changes), UInt64(settings.stepLimit), settings.allowsEscapes)
        }
        csim_set_context(raw, Unmanaged.passUnretained(self).toOpaque())
        if let choices = settings.choices { csim_follow(raw, choices, choices.count, settings.isStrict) }
        csim_set_recording(raw, settings.records, settings.traces)
        let executors = executorsOfSimulation()
        csim_set_executors(raw, executors.hop, executors.main, executors.nowhere)
        world = SimulatedWorld(self)
        trace?.run = self
    }

    deinit { csim_run_free(raw) }

    /// Whether the calling thread is the run's, and the run goes on.
    var isCurrent: Bool { csim_current() == raw && !isFinished }

    // MARK: Running

    /// Runs the program, and returns when it has ended. The calling task's locals are the program's.
    func run() async {
        begin()
        await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
                shared.withLock { $0.continuation = continuation }
                let code = csim_start_thread({ SimulatedRun.live($0!)?.resume() }, Unmanaged.passRetained(self).toOpaque())
                if code != 0 {
                    Unmanaged.passUnretained(self).release()
                    problem = Problem(kind: .threw, message: "no thread could be started for the simulation (errno \(code))")
                    endEarly()
                }
            }
        } onCancel: {
            cancel()
        }
    }

    /// Makes the first task on the caller's thread, where its locals are.
    private func begin() {
        guard let body, let world else { return }
        csim_enter(raw)
        startTask("body") { [self] in
            do {
                try await body(world)
                bodyResult = .success(())
            } catch {
                bodyResult = .failure(error)
            }
            csim_stop(raw)
        }
        csim_enter(nil)
    }

    /// The run's thread. Returns the caller's continuation, when the thread has released the run and what its tasks have released: the caller
    /// may rely on that.
    @inline(never) private static func live(_ context: UnsafeMutableRawPointer) -> CheckedContinuation<Void, Never>? {
        Unmanaged<SimulatedRun>.fromOpaque(context).takeRetainedValue().live()
    }

    private func live() -> CheckedContinuation<Void, Never>? {
        csim_enter(raw)
        drive()
        finishTasks()
        // Nothing of the program hears of the end of its loop: its tasks are gone, and so are its servers.
        for process in processes { process.abandonServers() }
        loopsLife = nil
        RunLoop.endOfThread()
        let continuation = end()
        // Only now: what is released until here is the program's. Outside the run, the tasks that a `deinit` makes would run for real.
        csim_enter(nil)
        return continuation
    }

    /// No task runs any more. Before that, what is kept of the run: a `deinit` may draw numbers.
    private func finishTasks() { /* DOES CALLOUT */
        steps = Int(csim_steps(raw))
        digest = csim_digest(raw)
        var recorded: UnsafePointer<csim_choice>?
        let count = csim_choices(raw, &recorded)
        if let recorded { choices = Array(UnsafeBufferPointer(start: recorded, count: count)) }
        csim_run_finish(raw)
        isFinished = true
    }

    /// The program is over. Returns the caller's continuation, the first time.
    private func end() -> CheckedContinuation<Void, Never>? {
        let continuation = shared.withLock { shared in
            shared.isOver = true
            defer { shared.continuation = nil }
            return shared.continuation
        }
        world?.network.end()
        processes = []
        incarnations = [:]
        mainErrors = []
        events = [:]
        claims = []
        waits = []
        simulatedLoop = nil
        clock = nil
        trace?.run = nil
        world = nil
        body = nil
        return continuation
    }

    /// Ends the run without the end of its thread, and resumes the caller. Inside the run, as `live` does: a `deinit` may make tasks.
    private func endEarly() {
        csim_enter(raw)
        finishTasks()
        let continuation = end()
        csim_enter(nil)
        continuation?.resume()
    }

    private func drive() {
        csim_set_checked(raw, true)
        while true {  // ends: with the run; an iteration that ends otherwise waited for another thread
            let result = csim_advance(raw)
            if finish(after: result) { return }
        }
    }

    /// False if the run goes on.
    private func finish(after result: Int32) -> Bool {
        let (isCancelled, issue) = shared.withLock { ($0.isCancelled, $0.issue) }
        if isCancelled {
            wasCancelled = true
            return true
        }
        if let issue, problem == nil { problem = issue }
        if problem != nil { return true }
        if result == Int32(CSIM_MISFIT.rawValue) {
            problem = Problem(
                kind: .notDeterministic,
                message: "the schedule does not fit the program: step \(csim_steps(raw)) has other ready jobs than when it was made")
            return true
        }
        if let first = mainErrors.first(where: { !$0.isTaken }) {
            problem = Problem(thrown: first.error, by: first.processName)
            return true
        }
        if let bodyResult {
            if case .failure(let error) = bodyResult { problem = Problem(thrown: error) }
            if settings.isStrict, problem == nil, !csim_followed_all(raw) {
                problem = Problem(
                    kind: .notDeterministic, message: "the schedule does not fit the program: it has more steps than the program")
            }
            return true
        }
        switch result {
        case Int32(CSIM_IDLE.rawValue):
            // What has escaped may come back. This waits in real time. A hop to a loop of another thread is counted nowhere.
            if settings.allowsEscapes && csim_wait_for_others(raw, 5_000) { return false }
            if shared.withLock({ $0.isCancelled }) { return false }
            problem = Problem(kind: .deadlock, message: deadlockReport())
        case Int32(CSIM_LIMIT.rawValue):
            problem = Problem(kind: .tooManySteps, message: livelockReport())
        default:
            problem = Problem(kind: .threw, message: "the simulation stopped without a reason; this is a fault of EventLoopSimulation")
        }
        return true
    }

    // MARK: From other threads

    func cancel() {
        let isOver = shared.withLock { shared in
            shared.isCancelled = true
            return shared.isOver
        }
        if !isOver { csim_stop(raw) }
    }

    /// An issue was recorded by a task of the run, on its thread.
    func noteIssue(_ issue: Problem) {
        let isOver = shared.withLock { shared in
            if shared.issue == nil { shared.issue = issue }
            return shared.isOver
        }
        if !isOver { csim_stop(raw) }
    }

    // MARK: Of the program

    /// Ends the run after the present step.
    func fail(_ kind: SimulationFailure.Kind, _ message: String, identity: String = "") {
        if problem == nil { problem = Problem(kind: kind, message: message, identity: identity) }
        csim_stop(raw)
    }

    func mainThrew(_ error: MainError) { mainErrors.append(error) }

    var now: UInt64 { csim_now(raw) }

    /// Calls `body` as a step of its own when the time has come.
    func schedule(after nanoseconds: UInt64, _ body: @escaping () -> Void) {
        nextEvent += 1
        events[nextEvent] = body
        trace?.noteScheduled(nextEvent)
        csim_add_event(raw, now.adding(nanoseconds: nanoseconds), nextEvent)
    }

    /// The number under which the scheduler knows the tasks of one start of a process.
    func newIncarnation(of process: SimulatedProcess) -> UInt32 {
        nextIncarnation += 1
        incarnations[nextIncarnation] = process
        return nextIncarnation
    }

    /// Whether the process has crashed since this start. False for 0, which is no process's.
    func hasCrashed(_ incarnation: UInt32) -> Bool {
        guard let process = incarnations[incarnation] else { return false }
        return process.hasCrashed || process.incarnation != incarnation
    }

    // MARK: The loop

    /// Made at the first use: most programs need none.
    var loop: RunLoop {
        if let simulatedLoop { return simulatedLoop }
        // The one that the program got from `RunLoop.current`: a thread has one loop, and nothing would end the earlier one.
        RunLoop.endOfThread()
        // What the loop asks of the system for itself is no escape.
        csim_enter(nil)
        let loop = RunLoop.makeDrivenLoopOfThread()
        let clock = RunLoop.ManualClock(start: RunLoop.Instant(nanoseconds: Int64(clamping: now)))
        loop.use(clock)
        // A run of an empty mode performs nothing that is queued.
        loopsLife = loop.keepAlive()
        csim_enter(raw)
        // The simulation's: the thread has entered it again.
        clock.wallTime = .now
        (simulatedLoop, self.clock) = (loop, clock)
        csim_set_has_loop(raw, Unmanaged.passUnretained(loop).toOpaque())
        return loop
    }

    private func runLoop() { _ = simulatedLoop?.run(mode: .default, for: .zero) }

    private func timeMoved(to now: UInt64) {
        guard let clock else { return }
        clock.advance(by: clock.now.duration(to: RunLoop.Instant(nanoseconds: Int64(clamping: now))))
    }

    // MARK: Escapes

    private func escaped(_ call: String, _ callers: [UnsafeMutableRawPointer], blocks: Bool) {
        escapeCount += 1
        escapes[call, default: 0] += 1
        if settings.allowsEscapes { return }
        if problem == nil {
            let caller = Symbols.firstOfProgram(callers).map { "called from \($0)" } ?? "by code without a name"
            fail(.escape, "\(call) \(caller) leaves the simulation\(explanation(of: call))", identity: call)
        }
        // Code that waits in a loop for another thread would spin for ever.
        if blocks && leavesThread {
            endEarly()
            csim_park()
        }
    }

    /// Its thread stays behind, with its loop, if the call is one that blocks.
    var leavesThread: Bool { escapeCount > 1_000 && !settings.allowsEscapes }

    private func explanation(of call: String) -> String {
        switch call {
        case "a resumption by another thread": ": a task of the simulation was resumed by a thread that is none of it"
        case "socket", "connect", "accept", "accept4", "getaddrinfo": "; use world.network"
        case "nanosleep", "clock_nanosleep", "usleep", "sleep": "; use Task.sleep"
        default: ""
        }
    }

    // MARK: Callbacks of the scheduler

    private static var callbacks: csim_callbacks {
        var callbacks = csim_callbacks()
        callbacks.after_step = { simulatedRun($0).afterStep() }
        callbacks.run_event = { context, event in simulatedRun(context).events.removeValue(forKey: event)?() }
        callbacks.run_loop = { simulatedRun($0).runLoop() }
        callbacks.loop_has_work = { simulatedRun($0).simulatedLoop?.hasQueuedWork ?? false }
        callbacks.loop_next = {
            guard let next = simulatedRun($0).simulatedLoop?.nextTimerFire() else { return .max }
            return UInt64(clamping: next.nanoseconds)
        }
        callbacks.time_moved = { simulatedRun($0).timeMoved(to: $1) }
        callbacks.escape = { context, call, callers, count, blocks in
            let callers = UnsafeBufferPointer(start: callers, count: Int(count)).compactMap { $0 }
            simulatedRun(context).escaped(String(cString: call!), callers, blocks: blocks)
        }
        callbacks.leaves = { simulatedRun($0).leaves($1!.pointee, to: $2) }
        callbacks.trace = { context, event in simulatedRun(context).trace?.note(event!.pointee) }
        return callbacks
    }
}

/// The run of a callback. Its context is set right after the run was made.
private func simulatedRun(_ context: UnsafeMutableRawPointer?) -> SimulatedRun {
    Unmanaged<SimulatedRun>.fromOpaque(context!).takeUnretainedValue()
}
