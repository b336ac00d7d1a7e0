// What all loops of a process share, at rest over every fork: see decision 24.
//
// In the child, the loops and threads of the parent do not exist: `clear` overwrites the values, and frees nothing. The empty values that it writes
// are made before (`fresh`, `none`): to make one, the runtime may look up types, under locks of its own.

internal import CPlatform

enum LoopGlobals {
    /// Before the first use of anything that `hold` names. Thread-safe.
    ///
    /// Swift makes a static value at its first use, and a child that another thread forks meanwhile would wait for it forever. So `hold` makes
    /// all of them, where a fork waits until that is done.
    @inline(__always)
    static func prepare() {
        cplatform_hold_globals(Int32(CPLATFORM_GLOBALS_OF_LOOPS), { LoopGlobals.hold() }, { LoopGlobals.release(inChild: $0) })
    }

    private static func hold() {
        LoopID.prepare()
        TickClock.prepare()
        _ = (RunLoop.Mode.onlyCommon, RunLoop.Mode.onlyDefault)
        _ = LoopLifetime.exitKey
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
