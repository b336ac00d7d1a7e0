// Holds over every fork the state of the watchdogs: see decision 24.

internal import CPlatform

enum WatchdogForks {
    /// Before the first use of anything that `hold` names. Thread-safe.
    @inline(__always)
    static func prepare() {
        cplatform_hold_over_forks(Int32(CPLATFORM_FORK_WATCHDOG), { WatchdogForks.hold() }, { WatchdogForks.release(inChild: $0) })
    }

    private static func hold() {
        WatchdogThread.holdOverFork()
    }

    private static func release(inChild: Bool) { WatchdogThread.release(inChild: inChild) }
}
