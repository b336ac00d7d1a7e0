// The protocol of sleeping and waking. Tests/Models/sleep.pml checks every interleaving; docs/run-sequence.md says why no wake-up is lost.

import Synchronization

/// Lets the owner sleep, and other threads and signal handlers wake it, without a lock. A hosted loop is *asleep* between two steps. If the host's
/// loop runs in a handler of this one, this one is *alert*: it works, but the next producer changes *alert* into *working* and writes.
struct Waker: ~Copyable, Sendable {
    private let attention = Atomic<UInt32>(0)
    private let sleepState = Atomic<UInt8>(SleepState.working)
    private let hosted = Atomic<Bool>(false)
    /// The descriptor that every base of the loop watches.
    let channel: WakeChannel

    private enum SleepState {
        static let working: UInt8 = 0
        static let asleep: UInt8 = 1
        /// Asleep, and the wake-up has been written.
        static let woken: UInt8 = 2
        /// Working, and the next producer writes.
        static let alert: UInt8 = 5
        /// Set in the states in which the next producer writes.
        static let writesBit: UInt8 = 1
    }

    init(_ channel: consuming WakeChannel) { self.channel = channel }

    // MARK: Any thread
    /// Sets bits, which the owner looks at before it sleeps next. Wakes nobody, unless the loop is hosted.
    @inline(__always) borrowing func mark(_ bits: Attention) {
        // The owner takes the bits before it looks, so it looks after a bit that is set.
        if attention.load(ordering: .sequentiallyConsistent) & bits.rawValue != bits.rawValue {
            attention.bitwiseOr(bits.rawValue, ordering: .sequentiallyConsistent)
            // The owner takes the bits after it has set this.
            if isHosted { wakeIfAsleep() }
        }
    }

    /// Sets bits for a step that the host makes anyway. The owner calls it between two steps.
    borrowing func markForStep(_ bits: Attention) { attention.bitwiseOr(bits.rawValue, ordering: .sequentiallyConsistent) }

    /// Sets the bit of a wake-up, and wakes the owner if it sleeps. Async-signal-safe.
    borrowing func wakeUp() {
        // Writes even if the bit is set, so that the pass that takes it sees what the caller has written. The lock orders what other bits stand for.
        attention.bitwiseOr(Attention.wake.rawValue, ordering: .sequentiallyConsistent)
        wakeIfAsleep()
    }

    /// After the bits are set. Async-signal-safe.
    @inline(__always) borrowing func wakeIfAsleep() {
        let state = sleepState.load(ordering: .sequentiallyConsistent)
        if state & SleepState.writesBit == 0 { return }
        let desired = state == SleepState.asleep ? SleepState.woken : SleepState.working
        let (isFirst, _) = sleepState.compareExchange(expected: state, desired: desired, ordering: .sequentiallyConsistent)
        // Otherwise another thread writes, or the owner has changed the state and takes the bits next.
        if isFirst { channel.wake() }
    }

    @inline(__always) var isHosted: Bool { hosted.load(ordering: .sequentiallyConsistent) }
    /// Whether the owner sleeps, or has been woken and has not noticed yet.
    var isSleeping: Bool { (SleepState.asleep...SleepState.woken).contains(sleepState.load(ordering: .acquiring)) }
    /// Whether the owner sleeps and nobody has woken it.
    var isUndisturbed: Bool { sleepState.load(ordering: .sequentiallyConsistent) == SleepState.asleep }

    // MARK: The owner
    @inline(__always) var untaken: Attention { Attention(rawValue: attention.load(ordering: .sequentiallyConsistent)) }

    @inline(__always)
    borrowing func takeAll() -> Attention { Attention(rawValue: attention.exchange(0, ordering: .sequentiallyConsistent)) }
    /// The owner is about to sleep. It now takes the bits and looks, then either sleeps or calls `stayAwake`.
    @inline(__always) borrowing func beginSleep() { sleepState.store(SleepState.asleep, ordering: .sequentiallyConsistent) }
    @inline(__always) borrowing func stayAwake() { sleepState.store(SleepState.working, ordering: .releasing) }

    /// The owner's wait has returned. True if somebody has woken it.
    @inline(__always) borrowing func endSleep() -> Bool {
        // A thread that writes between these two has set its bits before; the next wait returns early once.
        let wasWoken = sleepState.load(ordering: .acquiring) == SleepState.woken
        sleepState.store(SleepState.working, ordering: .releasing)
        return wasWoken
    }

    /// In a handler in which the host may sleep.
    borrowing func beAlert() { sleepState.store(SleepState.alert, ordering: .sequentiallyConsistent) }
    borrowing func setHosted(_ isHosted: Bool) { hosted.store(isHosted, ordering: .sequentiallyConsistent) }
    /// Whether the owner is between two sleeps, as the owner sees it: callouts are allowed.
    @inline(__always) var isWorking: Bool { sleepState.load(ordering: .relaxed) == SleepState.working }
    var isWoken: Bool { sleepState.load(ordering: .sequentiallyConsistent) == SleepState.woken }
}

extension RunLoop {
    /// Has a sleeping loop make another pass; a loop that works is not interrupted. Calls before the loop takes the wake-up coalesce.
    ///
    /// Any thread, and any signal handler: no lock, no allocation, keeps errno. A system call only if the loop sleeps. See `CFRunLoopWakeUp`.
    public func wakeUp() { waker.wakeUp() }
    /// Whether the owning thread is blocked waiting for an event. False in every callout. Thread-safe.
    public var isWaiting: Bool { waker.isSleeping && LoopID.current != id }  // the owner may ask in a C library's callback inside libevent

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

    /// The owner has changed how long a sleep may be: a host's descriptor must follow. Callers that may hold a lock leave callouts to the next step.
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
