// libdispatch offers run loops a handle that becomes readable when the main queue has work, and a call that does the work.

internal import CPlatform
internal import EventLoopLibC
import Synchronization

/// The state of the main queue, as the owner knows it. Owning thread only.
struct MainQueue {
    fileprivate(set) var hasHandle = false
    fileprivate(set) var isDraining = false
}

extension RunLoop {
    /// Whether this loop serves the main queue: the main thread's, where Dispatch is loaded and its handle can be watched.
    var servesMainQueue: Bool { isMainLoop && cplatform_main_queue_available() }
    func servesMainQueue(in mode: ModeState) -> Bool { servesMainQueue && mode.isCommon.load(ordering: .acquiring) }

    /// False when the process has no descriptor for the handle, which Dispatch makes when first asked; if it cannot, it ends the process.
    func prepareMainQueue() -> Bool {
        if !servesMainQueue || owned.mainQueue.hasHandle { return true }
        // The handle, and three descriptors to spare: other threads may take some before Dispatch does.
        if cplatform_check_room(4) != 0 {
            _ = Reserve.takeChannel()  // closed, its number is free for the handle
            if cplatform_check_room(1) != 0 { return false }
        }
        _ = cplatform_main_queue_descriptor()
        owned.mainQueue.hasHandle = true
        return true
    }

    /// Has the mode's base watch the handle. False when the kernel lacks the memory for it.
    func watchMainQueue(_ poller: Poller) -> Bool {
        if poller.state.watchesMainQueue { return true }
        let code = poller.watchMainQueue(cplatform_main_queue_descriptor())
        precondition(code == 0 || code == ENOMEM || code == ENOSPC, "the main queue's handle could not be watched: errno \(code)")
        return code == 0
    }

    /// Performs what the main queue has. False while an outer run or the host drains it: a main-queue block is not interrupted by another.
    func drainMainQueue(_ mode: ModeState, handleIsReadable: Bool) -> Bool { /* DOES CALLOUT */
        if handleIsReadable {
            // The watcher of the handle must read it; unread it would stay readable.
            var count: UInt64 = 0
            _ = read(cplatform_main_queue_descriptor(), &count, MemoryLayout<UInt64>.size)
        }
        if owned.mainQueue.isDraining {
            owned.pending.formUnion(.mainQueueDrain)
            return false
        }
        owned.pending.subtract(.mainQueueDrain)
        owned.mainQueue.isDraining = true
        defer { owned.mainQueue.isDraining = false }
        let span = openSpan(mode, CalloutItem(kind: .mainQueue))
        var isDrained = true
        // The host may be the main queue itself.
        if owned.hosting.isEmpty { cplatform_main_queue_drain() } else { isDrained = cplatform_main_queue_drain_unless_draining() }
        closeSpan(span, isCalled: isDrained)
        if isDrained { counters.sourcesHandled.increment() }
        return isDrained
    }
}
