// What a run says of its tasks.

internal import CSimulation

extension SimulatedRun {
    /// Names each task that waits, what it waits for, and where.
    func deadlockReport() -> String {
        let tasks = states().filter { $0.waits_for != 4 }
        var lines = ["no task can go on, and no time is waited for. \(tasks.count) task\(tasks.count == 1 ? " waits" : "s wait"):"]
        for task in tasks {
            lines.append("  \(name(of: task)) waits for \(whatIsAwaited(task))")
            for frame in Symbols.frames(of: task).prefix(6) { lines.append("      in \(frame)") }
        }
        for process in processes where process.hasCrashed { lines.append("  process \"\(process.name)\" has crashed") }
        return lines.joined(separator: "\n")
    }

    func livelockReport() -> String {
        let ready = states().filter { $0.waits_for == 4 }
        var lines = ["the run has not ended after \(settings.stepLimit) steps and \(Self.text(of: now)) of virtual time"]
        if !ready.isEmpty { lines[0] += ". Ready tasks:" }
        for task in ready.prefix(20) {
            lines.append("  \(name(of: task))")
            for frame in Symbols.frames(of: task).prefix(3) { lines.append("      in \(frame)") }
        }
        return lines.joined(separator: "\n")
    }

    private func states() -> [csim_task_state] {
        let count = csim_tasks(raw, nil, 0)
        var states = [csim_task_state](repeating: csim_task_state(), count: count)
        _ = csim_tasks(raw, &states, count)
        return states
    }

    func name(of number: UInt32) -> String {
        var state = csim_task_state()
        return csim_describe_task(raw, number, &state) ? name(of: state) : "task \(number)"
    }

    func name(of task: csim_task_state) -> String {
        var name = task.name.map { "task \"\(String(cString: $0))\"" } ?? "task \(task.number)"
        if task.name == nil, let place = task.created_in.flatMap(Symbols.name) { name += " (made in \(place))" }
        if let process = incarnations[task.process] { name += " of process \"\(process.name)\"" }
        return name
    }

    private func whatIsAwaited(_ task: csim_task_state) -> String {
        switch task.waits_for {
        case 1: task.other == 0 ? "the value of another task" : "the value of \(name(of: task.other))"
        case 2: "a continuation that nobody has resumed"
        case 3: "the tasks of its task group"
        case 5: "a run loop of another thread"
        default: "something that the runtime does not name"
        }
    }

    /// Virtual time since the beginning, in seconds.
    static func text(of now: UInt64) -> String {
        let microseconds = (now - 1_000_000_000_000) / 1_000
        let fraction = String(microseconds % 1_000_000)
        return "\(microseconds / 1_000_000)." + String(repeating: "0", count: 6 - fraction.count) + fraction + " s"
    }
}
