// What the watchdogs of the process share: see `LoopGlobals` of the core.

internal import CPlatform
internal import EventLoop

enum WatchdogGlobals {
    /// Before the first use of anything that `hold` names. Thread-safe.
    @inline(__always) static func prepare() {
        cplatform_hold_globals(Int32(CPLATFORM_GLOBALS_OF_WATCHDOG), { WatchdogGlobals.hold() }, { WatchdogGlobals.release(inChild: $0) })
    }

    private static func hold() {
        WatchdogThread.hold()
    }

    private static func release(inChild: Bool) { WatchdogThread.release(inChild: inChild) }
}
