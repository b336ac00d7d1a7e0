// Keeps the state that the named ports of a process share consistent across a fork: see decision 24.

internal import CPlatform

enum PortForks {
    /// Called before the first use of anything that `hold` names. Thread-safe.
    @inline(__always)
    static func prepare() {
        cplatform_hold_over_forks(Int32(CPLATFORM_FORK_PORTS), { PortForks.hold() }, { PortForks.release(inChild: $0) })
    }

    private static func hold() {
        _ = RunLoop.PassedDescriptors.none
        DescriptorCloser.prepare()
        PortEngine.holdOverFork()
        PortDirectory.holdOverFork()
    }

    private static func release(inChild: Bool) {
        PortDirectory.release(inChild: inChild)
        PortEngine.release(inChild: inChild)
    }
}
