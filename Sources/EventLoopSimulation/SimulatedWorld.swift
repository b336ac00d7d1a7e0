// Where the program under test lives.

internal import CSimulation
public import EventLoop

/// Where the program under test lives. It is `Sendable`, and used inside the simulation only: in the tasks of the run that it was made for. Any
/// other use, except to read `seed` or `network`, is a precondition failure.
public final class SimulatedWorld: Sendable {
    // SAFETY: the run ends after the last use of its world, and drops it; `run(_:)` refuses later uses.
    nonisolated(unsafe) private weak var ownRun: SimulatedRun?
    /// The seed of this run.
    public let seed: UInt64
    private let ownNetwork: SimulatedNetwork

    init(_ run: SimulatedRun) {
        ownRun = run
        seed = run.settings.seed
        ownNetwork = SimulatedNetwork(run)
    }

    private func run(_ call: StaticString) -> SimulatedRun {
        guard let ownRun, ownRun.isCurrent else {
            preconditionFailure(
                "\(call) was called outside its simulation; a SimulatedWorld is for the tasks of the body that it was passed to")
        }
        return ownRun
    }

    /// A random number that belongs to the program: it does not move the schedule. `Int.random(in:)` without a generator draws from the same
    /// stream.
    public func random<Value: FixedWidthInteger>(in range: ClosedRange<Value>) -> Value {
        var generator = ProgramChance(raw: run("SimulatedWorld.random(in:)").raw)
        return Value.random(in: range, using: &generator)
    }

    /// The network between the processes.
    public var network: SimulatedNetwork { ownNetwork }

    /// A run loop of the world, on the world's time. Made at the first use; it runs when it has something to do, in `.default`, and ends with the run.
    public var loop: RunLoop { run("SimulatedWorld.loop").loop }

    /// Starts a process: tasks that can be crashed together. Every task that its tasks make belongs to it.
    ///
    /// It lives on after `main` has returned, while it has listeners or tasks, until the simulation ends. If `main` throws, the run fails with
    /// `.threw`, unless somebody waits for the end of the process (`waitForEnd`) before it restarts and before the run is over. The name must be
    /// new in this world (a precondition).
    @discardableResult public func process(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        _ main: @escaping @Sendable (SimulatedProcess) async throws -> Void
    ) -> SimulatedProcess {
        let run = run("SimulatedWorld.process")
        precondition(
            !run.processes.contains { $0.name == name },
            "there is a process \"\(name)\" already; restart it, or give the new one another name", file: file, line: line)
        let process = SimulatedProcess(name, run, main)
        run.processes.append(process)
        process.start()
        return process
    }

    /// Checks `holds` now and after every step; the run fails with `.invariant` as soon as it is false.
    ///
    /// `holds` is called on the simulation's thread, in no task. It should only read.
    public func always(_ claim: String, file: StaticString = #fileID, line: UInt = #line, _ holds: @escaping @Sendable () -> Bool) {
        run("SimulatedWorld.always").always(SimulatedRun.Claim(text: claim, place: "\(file):\(line)", holds: holds))
    }

    /// Waits in virtual time until `holds` is true, which is checked after every step. If it is not within the limit, the run fails with
    /// `.invariant`, unless the process of the task that waits has crashed. Throws `CancellationError` if the task is cancelled.
    public func eventually(
        _ claim: String, within limit: Duration = .seconds(60), file: StaticString = #fileID, line: UInt = #line,
        _ holds: @escaping @Sendable () -> Bool
    ) async throws {
        try await run("SimulatedWorld.eventually").eventually(
            SimulatedRun.Claim(text: claim, place: "\(file):\(line)", holds: holds), within: limit)
    }
}

private struct ProgramChance: RandomNumberGenerator {
    let raw: OpaquePointer
    mutating func next() -> UInt64 { csim_draw_program(raw) }
}

/// A task with a name, for reports; without one where the standard library has no names.
@discardableResult
func startTask(_ name: String, _ body: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
    #if compiler(>=6.2)
    Task(name: name) { await body() }
    #else
    Task { await body() }
    #endif
}
