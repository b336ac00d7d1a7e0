import Synchronization

/// The activities that the observers of a mode observe. Read without the lock, written under it.
struct ObservedActivities: ~Copyable, Sendable {
    private let union = Atomic<UInt>(0)
    /// Counts the changes of the list.
    private let versionWord = Atomic<UInt64>(0)
    /// Whether an observer observes one of these.
    @inline(__always) func intersects(_ activities: RunLoop.Activity) -> Bool { union.load(ordering: .relaxed) & activities.rawValue != 0 }
    var version: UInt64 { versionWord.load(ordering: .acquiring) }

    fileprivate func didChangeLocked(_ list: ContiguousArray<RunLoop.Observer>) {
        versionWord.store(versionWord.load(ordering: .relaxed) &+ 1, ordering: .releasing)
        union.store(list.reduce(0) { $0 | $1.activities.rawValue }, ordering: .sequentiallyConsistent)
    }
}

/// The observers of a mode as the owner has seen them last. Owning thread only.
struct ObserverSnapshot {
    var list: ContiguousArray<RunLoop.Observer> = []
    /// Zero before the first change of the mode's list, which is empty then.
    var version: UInt64 = 0
}

extension ModeState {
    /// Sorted by order, then insertion.
    func insertObserverLocked(_ observer: RunLoop.Observer) {
        guard observer.modes.insert(index) else { return }
        let index = locked.observers.firstIndex { $0.order > observer.order } ?? locked.observers.endIndex
        locked.observers.insert(observer, at: index)
        observed.didChangeLocked(locked.observers)
    }

    func removeObserverLocked(_ observer: RunLoop.Observer) {
        guard observer.modes.remove(index) else { return }
        locked.observers.removeAll { $0 === observer }
        observed.didChangeLocked(locked.observers)
    }

    func removeAllObserversLocked() {
        locked.observers = []
        observed.didChangeLocked(locked.observers)
    }
}
