// A base whose loop is driven by another loop. While its mode is hosted, the outer set, which the `HostedMode` owns, holds the kernel's set of the
// base. The host watches the outer set, because the base's own is replaced when the poller makes a new base (`rebuild`).

internal import CPlatform
internal import EventLoopLibC

extension Poller {
    /// From now on an outer set is readable while the base has something to report.
    func join(_ outerSet: Int32) throws(RunLoop.SourceError) {
        guard let inner = epollSet() else {
            throw .system(operation: "finding the kernel's set of an event base that waits with \(state.base.method)", errno: ENOTSUP)
        }
        let code = cplatform_add_inner_set(outerSet, inner)
        if code != 0 { throw .system(operation: "watching the kernel's set of an event base", errno: code) }
        state.outerSet = outerSet
        state.asksAlways = true
    }

    /// Returns the set that the base's set was in. Called before that is closed: a child may have a duplicate, which would keep it in the outer set.
    @discardableResult
    func leaveOuterSet() -> Int32? {
        guard let outer = state.outerSet.take(), let inner = epollSet() else { return nil }
        cplatform_remove_inner_set(outer, inner)
        state.asksAlways = state.watchesMainQueue
        return outer
    }
}
