// How a run has failed, and when two runs have failed in the same way.

extension SimulatedRun {
    /// How a run ended, if it did not succeed.
    struct Problem: Sendable {
        var kind: SimulationFailure.Kind
        var message: String
        /// What distinguishes two failures of one kind: the place of a claim or of an issue, the name of a call, what an error is.
        var identity = ""

        /// The identity of an escape to another thread, and of the way back, which the scheduler calls so.
        static let anotherThread = "a resumption by another thread"
        /// The seed does not decide at which step another thread resumes a task.
        var isOfAnotherThread: Bool { kind == .escape && identity == Self.anotherThread }

        /// Whether two runs have failed in the same way. Messages may differ: they have the values and the tasks of one run.
        func isSame(as other: Problem) -> Bool { kind == other.kind && identity == other.identity }
    }
}

extension SimulatedRun.Problem {
    /// An error that the body has thrown, or the `main` of a process.
    init(thrown error: any Error, by process: String? = nil) { /* DOES CALLOUT */
        let text = "\(error)"
        self.init(
            kind: .threw, message: process.map { "process \"\($0)\" threw \(text)" } ?? text,
            identity: "\(process ?? "") \(String(reflecting: type(of: error))) \(text)")
    }
}
