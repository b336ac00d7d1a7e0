// The poller's own events: the wake-up, the deadline, Dispatch's handle.
//
// Lifecycle of the records: made when something is watched, freed by `Poller.deinit`.

internal import EventLoopLibC

extension Poller {
    /// The events that are the poller's own business.
    struct InternalRecord {
        let poller: Borrowed<Poller>
        var descriptor: Int32 = -1
        var flags: EventFlags = []
        var callback: EventCallback
        /// The descriptor must be read, because the backend knows levels only.
        var drains = false
    }
    typealias Internal = EventRecord<InternalRecord>

    /// From now on the channel wakes the wait. Once, before the first wait.
    func watch(_ channel: borrowing WakeChannel) throws(RunLoop.SourceError) {
        // A pipe that is never read fills up, and a full one has no edges.
        let drains = !state.base.reportsEdges || channel.readEnd != channel.writeEnd
        // Edge-triggered and never read, because every write is a new edge.
        let code = watchInternally(channel.readEnd, drains ? [.read, .persist] : [.read, .persist, .edge], drains: drains)
        if code != 0 { throw .system(operation: "watching the wake-up descriptor", errno: code) }
    }

    /// From now on the deadline ends the wait. Once, before the first wait.
    func watchDeadline() throws(RunLoop.SourceError) {
        let code = watchInternally(state.deadline.descriptor, state.deadline.flags) { _, _, context in
            let record = context!.assumingMemoryBound(to: InternalRecord.self)
            record.pointee.poller.use {
                $0.countCollected()
                $0.state.deadline.hasFired = true
            }
        }
        if code != 0 { throw .system(operation: "watching a timer descriptor", errno: code) }
        state.deadline.event = Internal.event(state.internals.last!)  // it was just added
    }

    /// Watches the handle that Dispatch offers to run loops. 0 or an errno.
    func watchMainQueue(_ descriptor: Int32) -> Int32 {
        let code = watchInternally(descriptor, [.read, .persist]) { _, _, context in
            let record = context!.assumingMemoryBound(to: InternalRecord.self)
            record.pointee.poller.use {
                $0.countCollected()
                $0.state.outcome.insert(.mainQueue)
            }
        }
        state.watchesMainQueue = code == 0
        if state.watchesMainQueue { state.asksAlways = true }
        return code
    }

    private func watchInternally(
        _ descriptor: Int32, _ flags: EventFlags, drains: Bool = false, _ callback: @escaping EventCallback = Poller.internalEventFired
    ) -> Int32 {
        let record = Internal.allocate(
            InternalRecord(poller: Borrowed(self, keptBy: .event), descriptor: descriptor, flags: flags, callback: callback, drains: drains)
        )
        let code = addInternal(record)
        if code != 0 {
            Internal.free(record)
            return code
        }
        state.internals.append(record)
        return 0
    }

    func addInternal(_ record: UnsafeMutablePointer<InternalRecord>) -> Int32 {
        let event = Internal.event(record)
        event.assign(
            state.base, record.pointee.descriptor, record.pointee.flags, isInternal: state.guests != nil, record.pointee.callback, record)
        return event.add()
    }

    private static let internalEventFired: EventCallback = { descriptor, _, context in
        let record = context!.assumingMemoryBound(to: InternalRecord.self)
        record.pointee.poller.use { $0.countCollected() }
        guard record.pointee.drains else { return }
        var count: UInt64 = 0
        _ = read(descriptor, &count, MemoryLayout<UInt64>.size)
    }
}
