// `simulate`: from seeds to a summary or a failure.
//
// A run that fails is run again, silently, before it is reported: if the second is another, that is the failure. Then its schedule is shortened,
// and the shortest is run once more for its trace.

internal import CSimulation
internal import EventLoop
internal import EventLoopLibC

/// Runs `body` once for each seed; throws the first failure. Any test function may call it; it takes no real time but that of computing. A seed
/// that fails runs again, to check it and to shorten its schedule.
///
/// In `body` time is virtual, and the seed decides which ready task goes on at each step, what `Int.random`, `ContinuousClock.now` and `Date()`
/// return, and how long the network takes. A run ends when `body` returns; what its tasks have not done by then they never do.
///
/// A loop without an `await` hangs: after ten seconds of real time in one step, a line on standard error says where.
///
/// If EVENTLOOP_SIMULATION in the environment is a schedule of this call, only that is run, and its timeline is printed.
///
/// - Parameters:
///   - seeds: each is one run.
///   - strategy: how the seed orders ready jobs.
///   - stepLimit: of each run; one that takes more fails with `.tooManySteps`. A limit that is not positive is a precondition failure.
///   - allowsEscapes: calls that leave the simulation are counted and carried out, and fail nothing. The same seed may do different things then.
///   - file: with `line`, the place of the call, by which EVENTLOOP_SIMULATION finds it.
///   - line: see `file`.
///   - body: the program, called once for each run.
/// - Throws: `SimulationFailure`; `CancellationError` if the task is cancelled; `RunLoop.SourceError.system` with ENOTSUP where the platform, the
///   compiler or a sanitizer does not allow a simulation, and with EBUSY inside a simulation.
@discardableResult public func simulate(
    seeds: ClosedRange<UInt64> = 1...1_000, strategy: SimulationStrategy = .mixed, stepLimit: Int = 1_000_000, allowsEscapes: Bool = false,
    file: StaticString = #fileID, line: UInt = #line, _ body: @escaping @Sendable (SimulatedWorld) async throws -> Void
) async throws -> SimulationSummary {
    try await Simulation(
        file: "\(file)", line: Int(line), strategy: strategy, stepLimit: stepLimit, allowsEscapes: allowsEscapes, body: body
    ).run(seeds)
}

/// One run, with the schedule that a failure printed.
///
/// Throws the failure again; returns if the program does not fail any more. A schedule that cannot be read, or does not fit the program, throws
/// `.notDeterministic`. EVENTLOOP_SIMULATION in the environment changes nothing. Otherwise as `simulate(seeds:)`.
@discardableResult public func simulate(
    replaying schedule: String, stepLimit: Int = 1_000_000, allowsEscapes: Bool = false, file: StaticString = #fileID, line: UInt = #line,
    _ body: @escaping @Sendable (SimulatedWorld) async throws -> Void
) async throws -> SimulationSummary {
    try await Simulation(
        file: "\(file)", line: Int(line), strategy: .mixed, stepLimit: stepLimit, allowsEscapes: allowsEscapes, body: body
    ).replay(schedule, isPrinted: false)
}

struct Simulation: Sendable {
    var file: String
    var line: Int
    var strategy: SimulationStrategy
    var stepLimit: Int
    var allowsEscapes: Bool
    var body: @Sendable (SimulatedWorld) async throws -> Void
    private let watched = WatchedRun()

    static let variable = "EVENTLOOP_SIMULATION"

    static var isSupported: Bool { runtimeAllowsSimulation && csim_is_supported() }

    private func check() throws {
        precondition(stepLimit > 0, "a run needs a positive stepLimit, not \(stepLimit)")
        guard Self.isSupported else {
            throw RunLoop.SourceError.system(
                operation: "simulate, which needs Linux with 64 bits, a Swift compiler of 6.3 or later, and a build without sanitizers",
                errno: ENOTSUP)
        }
        if csim_current() != nil {
            throw RunLoop.SourceError.system(operation: "simulate inside a simulation, which cannot contain another one", errno: EBUSY)
        }
        try Task.checkCancellation()
    }

    // MARK: Seeds

    func run(_ seeds: ClosedRange<UInt64>) async throws -> SimulationSummary {
        try check()
        if let schedule = try scheduleOfEnvironment() { return try await replay(schedule, isPrinted: true) }
        return try await HangWatch.perform(watched) { try await runAll(seeds) }
    }

    private func runAll(_ seeds: ClosedRange<UInt64>) async throws -> SimulationSummary {
        var summary = SimulationSummary(runs: 0, steps: 0, escapes: [:])
        for seed in seeds {
            let run = await perform(settings(seed, strategy), silences: false)
            if run.wasCancelled { throw CancellationError() }
            summary.add(run)
            guard let problem = run.problem else { continue }
            throw await report(problem, of: run)
        }
        return summary
    }

    /// What EVENTLOOP_SIMULATION has for this call.
    private func scheduleOfEnvironment() throws -> String? {
        guard let value = getenv(Self.variable) else { return nil }
        let text = String(cString: value)
        if text.isEmpty { return nil }
        guard let place = Schedule.place(of: text) else { throw unreadable(text, "\(Self.variable) has no file and line") }
        return place.file == file && place.line == line ? text : nil
    }

    private func unreadable(_ schedule: String, _ reason: String) -> SimulationFailure {
        SimulationFailure(
            kind: .notDeterministic, seed: 0, file: file, line: line, schedule: schedule,
            message: "\(reason), so it is no schedule; pass the text that a failure printed, whole", trace: [])
    }

    private func settings(_ seed: UInt64, _ strategy: SimulationStrategy) -> SimulatedRun.Settings {
        SimulatedRun.Settings(
            file: file, line: line, seed: seed, strategy: strategy.strategy(for: seed), stepLimit: stepLimit, allowsEscapes: allowsEscapes)
    }

    private func perform(_ settings: SimulatedRun.Settings, silences: Bool) async -> SimulatedRun {
        let run = SimulatedRun(settings, body)
        watched.run = run
        defer { watched.run = nil }
        await IssueScope.perform(run, silences: silences) { await run.run() }
        return run
    }

    // MARK: A schedule

    func replay(_ text: String, isPrinted: Bool) async throws -> SimulationSummary {
        try check()
        guard let schedule = Schedule(text) else { throw unreadable(text, "\"\(text)\" cannot be read") }
        var settings = settings(schedule.seed, strategy)
        settings.traces = true
        settings.records = true
        switch schedule.order {
        case .strategy(let strategy): settings.strategy = strategy
        case .choices(let choices):
            settings.choices = choices
            settings.isStrict = true
        }
        let run = await HangWatch.perform(watched) { [settings] in await perform(settings, silences: false) }
        if run.wasCancelled { throw CancellationError() }
        let trace = run.trace?.lines ?? []
        if isPrinted { Timeline(run).show(trace, schedule: text) }
        if let problem = run.problem { throw failure(problem, seed: schedule.seed, schedule: text, trace: trace) }
        var summary = SimulationSummary(runs: 0, steps: 0, escapes: [:])
        summary.add(run)
        return summary
    }

    private func failure(_ problem: SimulatedRun.Problem, seed: UInt64, schedule: String, trace: [String]) -> SimulationFailure {
        SimulationFailure(
            kind: problem.kind, seed: seed, file: file, line: line, schedule: schedule, message: problem.message, trace: trace)
    }

    // MARK: Reports

    private func report(_ problem: SimulatedRun.Problem, of run: SimulatedRun) async -> any Error {
        var settings = run.settings
        settings.records = true
        settings.traces = true
        let again = await perform(settings, silences: true)
        if again.wasCancelled { return CancellationError() }
        let strategyText = Schedule(file: file, line: line, seed: settings.seed, order: .strategy(settings.strategy)).text
        let trace = again.trace?.lines ?? []
        let didTheSame = again.digest == run.digest && again.problem?.isSame(as: problem) == true
        // Where another thread resumes a task at another time, or too late, one run escapes, and the other does so elsewhere or waits in vain.
        if !didTheSame, let escape = [problem, again.problem].lazy.compactMap({ $0 }).first(where: \.isOfAnotherThread) {
            return failure(escape, seed: settings.seed, schedule: strategyText, trace: trace)
        }
        if !didTheSame {
            return failure(
                SimulatedRun.Problem(kind: .notDeterministic, message: await difference(problem, run, again)), seed: settings.seed,
                schedule: strategyText, trace: trace)
        }
        if !mayShorten(problem, again) {
            return failure(problem, seed: settings.seed, schedule: strategyText, trace: trace)
        }
        let shortest = await Shortening(problem: problem, perform: { await perform($0, silences: true) }).shorten(again)
        if Task.isCancelled { return CancellationError() }
        settings.choices = shortest
        let last = await perform(settings, silences: true)
        let text = Schedule(file: file, line: line, seed: settings.seed, order: .choices(last.choices)).text
        // Nobody passes a longer text on. Then the report is of the run that the short one repeats.
        guard let found = last.problem, found.isSame(as: problem), text.utf8.count <= 16_384 else {
            return failure(problem, seed: settings.seed, schedule: strategyText, trace: trace)
        }
        return failure(found, seed: settings.seed, schedule: text, trace: last.trace?.lines ?? [])
    }

    /// Each try would take as long: as a million steps, or as a deadlock that is one after seconds of real time only. And each try's thread would
    /// stay behind as this one's.
    private func mayShorten(_ problem: SimulatedRun.Problem, _ run: SimulatedRun) -> Bool {
        if problem.kind == .tooManySteps || run.steps > 100_000 { return false }
        if problem.kind == .deadlock && allowsEscapes { return false }
        return !run.leavesThread
    }

    /// Says where two runs of one seed part.
    private func difference(_ problem: SimulatedRun.Problem, _ run: SimulatedRun, _ again: SimulatedRun) async -> String {
        var message = "the same seed did different things in two runs: \(run.steps) steps (\(problem.message)), then \(again.steps) steps"
        message += again.problem.map { " (\($0.message))" } ?? " without a failure"
        let third = await perform(again.settings, silences: true)
        let (one, other) = (again.trace?.lines ?? [], third.trace?.lines ?? [])
        if let index = zip(one, other).enumerated().first(where: { $0.element.0 != $0.element.1 })?.offset {
            message += ". They part at step \(index + 1): \"\(one[index])\" and \"\(other[index])\""
        }
        return message
            + ". State that outlives a run, such as a static variable, does that, and so does everything that the seed does not decide"
    }
}

extension SimulationSummary {
    fileprivate mutating func add(_ run: SimulatedRun) {
        runs += 1
        steps += run.steps
        escapes.merge(run.escapes, uniquingKeysWith: +)
    }
}
