// Stopping a run and waking a thread, from anywhere.
//
// Both calls touch atomics and write to a descriptor, and nothing else: no lock, no allocation, no reference counting of anything that
// could go. That makes them right in signal handlers.

import Synchronization

extension RunLoop {
    /// Ends the innermost run in progress. When none is in progress nothing happens, unless `sticky`: then the next run ends at once
    /// with `.stopped`, without telling observers.
    ///
    /// The pass in progress is completed, without sleeping. A stop acts on the run that is innermost at the moment of the call; two
    /// stops before one is noticed end one run. A run that returns `.handledSource` uses up an ordinary stop; a sticky one is kept for
    /// the next run. Any thread, and any signal handler: it takes no lock, allocates nothing, keeps errno. In a forked child it does
    /// nothing. See `CFRunLoopStop`.
    public func stop(sticky: Bool = false) {
        if belongsToParentProcess { return }
        let request = StopWord.stopRequested | (sticky ? StopWord.isSticky : 0)
        while true {  // ends: each turn means that the run which was innermost has ended meanwhile
            if let pointer = UnsafeRawPointer(bitPattern: innermost.load(ordering: .sequentiallyConsistent)) {
                // The activation lives as long as the loop.
                let isDelivered = Unmanaged<Activation>.fromOpaque(pointer)._withUnsafeGuaranteedRef { $0.request(request) }
                if !isDelivered { continue }
                return wakeUp()
            }
            if !sticky { return }
            pendingStop.store(true, ordering: .sequentiallyConsistent)
            // A run that began meanwhile may have looked before the store.
            if innermost.load(ordering: .sequentiallyConsistent) == 0 || !takePendingStop() { return }
        }
    }

    /// Makes a sleeping loop go round once more; a loop that works is not interrupted. Any number before the wake is taken are one.
    ///
    /// Any thread, and any signal handler: it takes no lock, allocates nothing, keeps errno. One system call when the loop sleeps, none
    /// when it works. In a forked child it does nothing. See `CFRunLoopWakeUp`.
    public func wakeUp() {
        if belongsToParentProcess { return }
        // A write also if the bit is set: the pass that takes it must see what the caller has written before. The other bits speak of what is
        // under the lock, which orders it.
        attention.bitwiseOr(Attention.wake.rawValue, ordering: .sequentiallyConsistent)
        wakeIfAsleep()
    }

    /// Whether the owning thread is blocked waiting for an event. False in every callout. Thread-safe.
    public var isWaiting: Bool {
        // On the owning thread the caller's own code runs: perhaps a C library's, inside libevent, but it does not wait.
        sleepState.load(ordering: .acquiring) != SleepState.working && LoopID.current != id
    }

    // MARK: Waking

    /// Tells the owner what to look at, and wakes it if it sleeps.
    @inline(__always)
    func notify(_ bits: Attention) {
        // In a child of fork the channel is the parent's.
        if belongsToParentProcess { return }
        mark(bits)
        wakeIfAsleep()
    }

    /// As `notify`, for changes that the owner finds by itself before it sleeps when it made them in a callout.
    func notifyIfElsewhere(_ bits: Attention) {
        if LoopID.current == id && sleepState.load(ordering: .relaxed) == SleepState.working { return }
        notify(bits)
    }

    /// Tells the owner what to look at when it next does.
    @inline(__always)
    func mark(_ bits: Attention) {
        // A bit that is set will be looked after: the owner takes the bits before it looks.
        if attention.load(ordering: .sequentiallyConsistent) & bits.rawValue != bits.rawValue {
            attention.bitwiseOr(bits.rawValue, ordering: .sequentiallyConsistent)
        }
    }

    /// Only the step from asleep writes, so that a sleep costs one write and a working loop none.
    @inline(__always)
    func wakeIfAsleep() {
        if sleepState.load(ordering: .sequentiallyConsistent) != SleepState.asleep { return }
        let (isFirst, _) = sleepState.compareExchange(
            expected: SleepState.asleep, desired: SleepState.woken, ordering: .sequentiallyConsistent)
        if isFirst { channel.wake() }
    }

    // MARK: Noticing stops, on the owning thread

    /// Takes the stop of `run`, if there is one.
    @inline(__always)
    func takeStop(_ run: Activation) -> Bool {
        if isTerminating.load(ordering: .acquiring) { return true }
        if run.stopWord.load(ordering: .sequentiallyConsistent) == StopWord.running { return false }
        return run.stopWord.exchange(StopWord.running, ordering: .sequentiallyConsistent) != StopWord.running
    }

    /// Takes the stop that was kept for the next run, unless that run is refused: no loop runs in `.common`.
    @inline(__always)
    func takePendingStop(for name: Mode) -> Bool {
        pendingStop.load(ordering: .sequentiallyConsistent) && name != .common && takePendingStop()
    }

    func takePendingStop() -> Bool {
        pendingStop.load(ordering: .sequentiallyConsistent) && pendingStop.exchange(false, ordering: .sequentiallyConsistent)
    }
}

extension Activation {
    /// Adds a stop to a run in progress. False when it is not in progress any more.
    fileprivate func request(_ request: UInt8) -> Bool {
        var seen = stopWord.load(ordering: .sequentiallyConsistent)
        while seen != StopWord.idle {  // ends: each turn means that another thread has changed the word
            let (exchanged, original) = stopWord.compareExchange(
                expected: seen, desired: seen | request, ordering: .sequentiallyConsistent)
            if exchanged { return true }
            seen = original
        }
        return false
    }

    var isStopRequested: Bool { stopWord.load(ordering: .sequentiallyConsistent) & StopWord.stopRequested != 0 }
}
