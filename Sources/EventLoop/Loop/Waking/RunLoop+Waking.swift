extension RunLoop {
    /// Has a sleeping loop make another pass; a loop that works is not interrupted. Calls before the loop takes the wake-up coalesce.
    ///
    /// Any thread, and any signal handler: no lock, no allocation, keeps errno. One system call when the loop sleeps, else none. See
    /// `CFRunLoopWakeUp`.
    public func wakeUp() { waker.wakeUp() }
    /// Whether the owning thread is blocked waiting for an event. False in every callout. Thread-safe.
    // The owning thread runs its caller, perhaps a C library's callback inside libevent.
    public var isWaiting: Bool { waker.isSleeping && LoopID.current != id }

    @inline(__always) func notify(_ bits: Attention) {
        waker.mark(bits)
        waker.wakeIfAsleep()
    }

    /// As `notify`, for changes that the owner finds by itself before it sleeps when it made them in a callout.
    @inline(never)  // inlined, it would give a larger frame to callers that rarely need it
    func notifyIfElsewhere(_ bits: Attention) {
        if LoopID.current == id {
            if waker.isWorking { return }
            if isCalledByHost { return sleepInHost(callsOut: false) }
        }
        notify(bits)
    }

    /// The owner has changed how long a sleep may be: the host's descriptor must follow. Callers that may hold a lock leave callouts to the next
    /// step.
    @inline(__always) func didChangeSleep(callsOut: Bool = false) { /* DOES CALLOUT, if `callsOut` */
        if !waker.isWorking && isCalledByHost { sleepInHost(callsOut: callsOut) }
    }

    /// Whether the caller is the host's code between two steps, and not a C library's callback inside the wait of the innermost run.
    @inline(never) private var isCalledByHost: Bool {
        guard owned.hosting.isBetweenSteps else { return false }
        let modeIndex = runs.modeIndex
        return modeIndex < 0 || modeTable[modeIndex].owned.poller?.state.isInside != true
    }

    /// Whether the owner may call out: it is not on its way to sleep, and not inside a wait.
    var mayCallOut: Bool { waker.isWorking || isCalledByHost }
}
