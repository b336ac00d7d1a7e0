// A base whose loop is driven by another loop.
//
// Lifecycle of the outer set: made by `RunLoop.beginHosting`, closed by the `HostedMode` that owns it. While a mode is hosted, the outer set holds
// the kernel's set of the mode's base. The host watches the outer set, because the base's own set is replaced when the poller makes a new
// base (`rebuild`).

internal import CPlatform
internal import EventLoopLibC

/// A kernel's set that is readable as long as the base's set in it, `inner`, has something to report.
struct OuterSet { let descriptor: Int32, inner: Int32 }

extension Poller {
    /// From now on an outer set is readable while the base has something to report.
    func join(_ outerSet: Int32) throws(RunLoop.SourceError) {
        guard state.base.reportsEdges, let inner = epollSet() else {
            throw .system(operation: "finding the kernel's set of an event base that waits with \(state.base.method)", errno: ENOTSUP)
        }
        let code = cplatform_add_inner_set(outerSet, inner)
        if code != 0 { throw .system(operation: "watching the kernel's set of an event base", errno: code) }
        state.outerSet = OuterSet(descriptor: outerSet, inner: inner)
        state.asksAlways = true
    }

    /// Returns the set that the base's set was in. Called before the base's set is closed: a child may have a duplicate, which would keep it in
    /// the outer set.
    @discardableResult
    func leaveOuterSet() -> OuterSet? {
        guard let set = state.outerSet.take() else { return nil }
        cplatform_remove_inner_set(set.descriptor, set.inner)
        state.asksAlways = state.watchesMainQueue
        return set
    }
}
