// Tasks that leave the simulation for a run loop of another thread.

internal import CSimulation
internal import EventLoop

extension SimulatedRun {
    /// Whether an executor of the program is a run loop of another thread, or one that has ended. Unless the run allows escapes, it fails then, and
    /// the task does not get there: so what the other thread does changes nothing.
    func leaves(_ task: csim_task_state, to executor: csim_executor) -> Bool {
        guard let identity = executor.identity,
            let loop = Unmanaged<AnyObject>.fromOpaque(identity).takeUnretainedValue() as? RunLoop, !loop.isCurrent
        else { return false }
        if !settings.allowsEscapes {
            let place = loop.givenName.map { "the run loop of the thread \"\($0)\"" } ?? "a run loop of another thread"
            fail(
                .escape, "\(name(of: task)) goes on at \(place), an executor that is not the simulation's; use world.loop",
                identity: Problem.anotherThread)
        }
        return true
    }
}
