// What the named ports of the process share: see `LoopGlobals` of the core.

internal import CPlatform
internal import EventLoop

enum PortGlobals {
    /// Called before the first use of anything that `hold` names. Thread-safe.
    @inline(__always) static func prepare() {
        cplatform_hold_globals(Int32(CPLATFORM_GLOBALS_OF_PORTS), { PortGlobals.hold() }, { PortGlobals.release(inChild: $0) })
    }

    private static func hold() {
        _ = RunLoop.PassedDescriptors.none
        DescriptorCloser.prepare()
        PortEngine.hold()
        PortDirectory.hold()
    }

    private static func release(inChild: Bool) {
        PortDirectory.release(inChild: inChild)
        PortEngine.release(inChild: inChild)
    }
}
