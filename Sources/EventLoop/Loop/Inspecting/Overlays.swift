// Members for the package's other libraries, not for users: they have the access level `package`.

internal import EventLoopLibC
import Synchronization

/// Called at the end of a pass, because it has asked for that during the pass: a stream sends what tasks have written in the pass.
package protocol PassEndListener: AnyObject, Sendable {
    /// On the loop's thread. May call out.
    func passWillEnd() /* DOES CALLOUT */
}

extension RunLoop {
    /// The present as the calling thread's loop sees it; the monotonic clock's on a thread without a loop, which does not get one by this.
    package static var presentOfCaller: Instant { LoopID.current == 0 ? .now : LoopLifetime.unsafeCurrent.now() }
    /// Whether the loop makes no more passes: its thread has exited, or its `RunLoopThread` was stopped. Every run ends at once then. Thread-safe.
    package var isOver: Bool { hasEnded.load(ordering: .acquiring) || runs.isTerminating }

    /// Whether a run of `name` would be `.finished` without a pass; `reports` likely mistakes, as that run would. Owning thread only; asks nobody.
    package func isFinished(_ name: Mode, reports: Bool = false) -> Bool { /* DOES CALLOUT, if `reports` */
        preconditionOnLoop("a Foundation form of run")
        if hasEnded.load(ordering: .relaxed) { return true }
        let mode = modeToRun(name)?.object
        if let mode, !isEmpty(mode) { return false }
        if reports { finishWithoutPass(name, mode) }
        return true
    }

    /// Has `listener` called once, when the pass ends, also by the thread's end, or before it sleeps. False outside a pass. Owning thread only.
    package func callAtEndOfPass(_ listener: any PassEndListener) -> Bool {
        if runs.depth == 0 { return false }
        owned.passEnds.append(listener)
        owned.pending.formUnion(.passEnd)
        return true
    }

    /// What is on the loop, each with the place where it was made. Thread-safe. O(items).
    package var itemsLeft: [String] {
        shared.withLockIfOwn { shared in
            var items: [String] = []
            shared.sources.forEach { items.append(item($0.source)) }
            shared.timers.forEach { items.append(item("timer", $0.label, $0.site)) }
            var seen: Set<ObjectIdentifier> = []
            for observer in shared.modes.all.flatMap({ $0.locked.observers }) where seen.insert(ObjectIdentifier(observer)).inserted {
                items.append(item("observer", observer.label, observer.site))
            }
            return items
        } ?? []
    }
}

extension RunLoop.Source {
    /// What another library of the package stores with the source, which retains it. Thread-safe.
    package var attachment: (any AnyObject & Sendable)? {
        get { state.withLock { $0.rare?.attachment } }
        set {
            var old = newValue
            state.withLock { swap(&$0.madeRare().attachment, &old) }
            withExtendedLifetime(old) {}  // released outside the lock: its deinit may call out
        }
    }
}

extension RunLoop.Timer {
    /// Sets `nextFire` to an instant that a date of the wall clock was converted to, and keeps that date. Thread-safe.
    package func setNextFire(_ instant: RunLoop.Instant, convertedFrom wallDate: Double) {
        if !isValid { return }
        keepWallDate(wallDate, convertedTo: instant)
        nextFire = instant
    }

    /// The date of the wall clock that was converted to `nextFire`, if the timer has not moved since. Thread-safe.
    package var wallDateOfNextFire: Double? { isValid ? wallDate(convertedTo: nextFire) : nil }
    /// `tolerance` for a module that has another property of that name.
    package var toleranceAsDuration: Duration {
        get { tolerance }
        set { tolerance = newValue }
    }
}

// MARK: - For the simulation of a program: its scheduler runs the loop when there is something to do, and ends it with the simulated program
/// Of every driven loop: none of them sleeps.
private let sharedChannel: WakeChannel = {
    guard let channel = WakeChannel() else { preconditionFailure("no descriptor could be made for simulated run loops: errno \(errno)") }
    return channel
}()

extension RunLoop {
    /// Makes the calling thread's loop. It has no descriptor of its own: tasks of a simulation that has ended may hold it for ever.
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
