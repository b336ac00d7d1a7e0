// Holds over every fork the state that all loops of a process share: see decision 24.

internal import CPlatform

enum LoopForks {
    /// Before the first use of anything that `hold` names. Thread-safe.
    ///
    /// Swift makes a static value at its first use, and a child that is forked meanwhile by another thread would wait for it for ever. So all
    /// of them are made here, where a fork waits until that is done.
    @inline(__always)
    static func prepare() {
        cplatform_hold_over_forks(Int32(CPLATFORM_FORK_LOOPS), { LoopForks.hold() }, { LoopForks.release(inChild: $0) })
    }

    private static func hold() {
        LoopID.prepare()
        _ = (RunLoop.Mode.onlyCommon, RunLoop.Mode.onlyDefault)
        _ = LoopLifetime.exitKey
        Reserve.prepare()
        LoopRegistry.holdOverFork()
        OrphanedJobExecutor.holdOverFork()
        LibeventRuntime.holdOverFork()
        Warnings.holdOverFork()
    }

    private static func release(inChild: Bool) {
        Warnings.releaseAfterFork()
        LibeventRuntime.releaseAfterFork()
        OrphanedJobExecutor.release(inChild: inChild)
        LoopRegistry.release(inChild: inChild)
    }
}
