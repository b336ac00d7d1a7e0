// For the simulation of a program: its scheduler runs the loop when there is something to do, and ends it with the simulated program.

internal import EventLoopLibC

/// Of every driven loop: none of them sleeps.
private let sharedChannel: WakeChannel = {
    guard let channel = WakeChannel() else { preconditionFailure("no descriptor could be made for simulated run loops: errno \(errno)") }
    return channel
}()

extension RunLoop {
    /// Makes the calling thread's loop. It has no wake-up descriptor of its own: tasks of a simulation that has ended may hold it for ever.
    package static func makeDrivenLoopOfThread() -> RunLoop {
        LoopGlobals.prepare()
        let loop = RunLoop(waking: WakeChannel(sharing: sharedChannel))
        LoopLifetime.adopt(loop)
        return loop
    }

    /// Whether queues hold something for a pass: a signal, a closure, a job, a change. Neither timers nor the kernel's events. Owning thread only.
    package var hasQueuedWork: Bool { hasWork(.queues) }

    /// Ends the calling thread's loop, if it has one, as the end of the thread does. Not inside a run of it (a precondition).
    package static func endOfThread() { /* DOES CALLOUT */
        precondition(
            LoopID.current == 0 || LoopLifetime.unsafeCurrent.runs.depth == 0,
            "the loop of a simulation was asked for inside a run of RunLoop.current; ask for it first, and run no other")
        LoopLifetime.endLoopOfThisThread()
    }
}
