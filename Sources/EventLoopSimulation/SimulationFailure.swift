// What a simulation reports.

/// The order in which ready jobs run.
public enum SimulationStrategy: Sendable, Hashable {
    /// Each ready job has the same chance.
    case random
    /// Each task has a random priority, and the highest runs until it waits. At `changes` random points, 16 at most, the running task gets the
    /// lowest one (PCT). A job that has been ready for more than 400 steps comes first. Finds orders in which one task is delayed for long.
    case priorities(changes: Int)
    /// In the order in which the jobs became ready. Only what the program and the network draw differs between seeds.
    case firstComeFirstServed
    /// Takes turns among the others by seed.
    case mixed

    /// What a seed uses.
    func strategy(for seed: UInt64) -> SimulationStrategy {
        guard self == .mixed else { return self }
        switch seed % 8 {
        case 0: return .firstComeFirstServed
        case 2: return .priorities(changes: 1)
        case 4: return .priorities(changes: 2)
        case 6: return .priorities(changes: 3)
        default: return .random
        }
    }
}

/// A run of a simulation failed: what happened, where, and how to see it again.
public struct SimulationFailure: Error, Sendable, CustomStringConvertible {
    /// What failed.
    public enum Kind: Sendable, Hashable {
        /// The body, or the `main` of a process, threw an error.
        case threw
        /// A claim of `always` or `eventually` did not hold.
        case invariant
        /// No task could go on.
        case deadlock
        /// Code left the simulation.
        case escape
        /// The same seed did different things, or a schedule does not fit the program.
        case notDeterministic
        /// The run took more steps than the limit.
        case tooManySteps
        /// `#expect`, `#require` or `Issue.record` recorded an issue.
        case issueRecorded
    }
    /// What failed.
    public var kind: Kind
    /// The seed of the run.
    public var seed: UInt64
    /// The file of the `simulate` call.
    public var file: String
    /// The line of the `simulate` call.
    public var line: Int
    /// Replays the failure: what `simulate(replaying:)` and EVENTLOOP_SIMULATION take.
    public var schedule: String
    /// The failure in sentences.
    public var message: String
    /// One line for each step of the run that `schedule` repeats: virtual time, task, what it did. Of a long run, the newest steps, at least 10,000,
    /// after a line with the number of the others.
    public var trace: [String]

    /// The failure, the end of the trace, and the line that replays it.
    public var description: String {
        var lines = ["\(file):\(line): seed \(seed): \(title): \(message)"]
        if !trace.isEmpty {
            let shown = trace.suffix(40)
            lines.append(shown.count < trace.count ? "the last \(shown.count) of \(trace.count) steps:" : "the steps:")
            lines += shown.map { "  " + $0 }
        }
        if !schedule.isEmpty {
            lines.append("replay it with a timeline: EVENTLOOP_SIMULATION='\(schedule)' swift test --filter <this test>")
        }
        return lines.joined(separator: "\n")
    }

    private var title: String {
        switch kind {
        case .threw: "an error was thrown"
        case .invariant: "a claim does not hold"
        case .deadlock: "deadlock"
        case .escape: "a call leaves the simulation"
        case .notDeterministic: "not deterministic"
        case .tooManySteps: "too many steps"
        case .issueRecorded: "an issue was recorded"
        }
    }
}

/// A process crashed while somebody waited for its end, or before.
public struct SimulatedCrash: Error, Sendable, Hashable {
    /// The name of the process.
    public var process: String
}

/// What `simulate` did.
public struct SimulationSummary: Sendable, Hashable {
    /// How many seeds ran.
    public var runs: Int
    /// The steps of all runs.
    public var steps: Int
    /// Calls that left the simulation, with `allowsEscapes`.
    public var escapes: [String: Int]
}
