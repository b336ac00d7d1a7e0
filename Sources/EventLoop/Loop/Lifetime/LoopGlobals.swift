// What all loops of a process share, at rest over every fork: see decision 24. In the child, `clear` stores empty values that were made before.

internal import CPlatform

enum LoopGlobals {
    /// Before the first use of anything that `hold` names. Thread-safe.
    @inline(__always) static func prepare() {
        cplatform_hold_globals(Int32(CPLATFORM_GLOBALS_OF_LOOPS), { LoopGlobals.hold() }, { LoopGlobals.release(inChild: $0) })
    }

    private static func hold() {
        LoopID.prepare()
        TickClock.prepare()
        _ = (RunLoop.Mode.onlyCommon, RunLoop.Mode.onlyDefault, LoopLifetime.exitKey, CallInProgress.key)
        Reserve.prepare()
        LoopRegistry.hold()
        OrphanedJobExecutor.hold()
        LibeventRuntime.hold()
        Warnings.hold()
    }

    private static func release(inChild: Bool) {
        if inChild {
            OrphanedJobExecutor.clear()
            LoopRegistry.clear()
            Reserve.clear()
        }
        Warnings.release()
        LibeventRuntime.release()
        OrphanedJobExecutor.release()
        LoopRegistry.release()
    }
}
