// The trace of a run: one line for each step, and what a timeline draws.

internal import CSimulation

final class TraceWriter {
    struct Step {
        var at: UInt64
        var track: String
        var what: String
        /// The numbers of tasks that became ready in this step.
        var wakes: [UInt32] = []
        /// The events that this step has scheduled: packets, for example.
        var scheduled: [UInt64] = []
        /// 0 if the step is no task's.
        var task: UInt32
        /// 0 if the step is no event.
        var event: UInt64 = 0
    }

    unowned(unsafe) var run: SimulatedRun?
    private(set) var steps: [Step] = []
    private var step: Step?
    private var actions: [String] = []
    /// Tasks that this step has made ready, and those of them that are new.
    private var wakes: [UInt32] = []
    private var made: Set<UInt32> = []
    private var names: [UInt32: String] = [:]
    /// The newest steps are kept.
    private let limit = 10_000
    private(set) var dropped = 0

    var lines: [String] {
        let lines = steps.map { "\(SimulatedRun.text(of: $0.at))  \($0.track)  \($0.what)" }
        return dropped == 0 ? lines : ["… \(dropped) earlier steps"] + lines
    }

    func note(_ event: csim_trace_event) {
        switch csim_event(rawValue: UInt32(event.what)) {
        case CSIM_BEGINS: begin(event)
        case CSIM_ENDS: end()
        case CSIM_CREATES: made.insert(event.other)
        case CSIM_RESUMES:
            if event.other == 0 { break }
            if event.other == event.task { return actions.append(subject(event.task) + "yields") }
            wakes.append(event.other)
        case CSIM_HOPS:
            actions.append(subject(event.other) + "hops to \(event.executor.identity == nil ? "the pool" : executor(event.executor))")
        case CSIM_SLEEPS: actions.append(subject(event.task) + "sleeps until \(SimulatedRun.text(of: event.time))")
        case CSIM_FINISHES: actions.append(subject(event.task) + "ends")
        default: break
        }
    }

    func noteScheduled(_ event: UInt64) { step?.scheduled.append(event) }

    /// What an event of the network or of a process does, said by itself.
    func say(_ text: String) { actions.append(text) }

    private func begin(_ event: csim_trace_event) {
        let track: String
        switch csim_kind(rawValue: UInt32(event.kind)) {
        case CSIM_LOOP: track = "the world's loop"
        case CSIM_EVENT: track = "the world"
        default: track = event.task == 0 ? "an actor's queue" : name(event.task)
        }
        step = Step(at: event.time, track: track, what: "", task: event.task, event: event.task == 0 ? UInt64(event.other) : 0)
        actions = []
        wakes = []
        made = []
        if let function = place(of: event) { actions.append("in \(function)") }
    }

    private func place(of event: csim_trace_event) -> String? {
        if let function = event.function, let name = Symbols.name(function) { return name }
        guard event.task != 0, let run else { return nil }
        var state = csim_task_state()
        return csim_describe_task(run.raw, event.task, &state) ? Symbols.frames(of: state).first : nil
    }

    private func end() {
        guard var done = step else { return }
        for number in wakes {
            actions.append(made.contains(number) ? "makes \(name(number))" : "makes \(name(number)) ready")
        }
        done.wakes = wakes
        done.what = actions.isEmpty ? "runs" : actions.joined(separator: ", ")
        step = nil
        if steps.count == limit * 2 {
            steps.removeFirst(limit)
            dropped += limit
        }
        steps.append(done)
    }

    private func name(_ number: UInt32) -> String {
        if let name = names[number] { return name }
        let name = run?.name(of: number) ?? "task \(number)"
        // A new task has no name yet when it becomes ready.
        if name != "task \(number)" || step?.task == number { names[number] = name }
        return name
    }

    /// Who does something, if it is not the task that the step belongs to: an actor's queue runs several.
    private func subject(_ task: UInt32) -> String { task == 0 || task == step?.task ? "" : name(task) + " " }

    private func executor(_ executor: csim_executor) -> String {
        if executor.identity == executorsOfSimulation().main.identity { return "the main actor" }
        guard let identity = executor.identity else { return "the pool" }
        let type = Symbols.typeName(identity)
        return type.map { "\($0)" } ?? "an actor"
    }
}
