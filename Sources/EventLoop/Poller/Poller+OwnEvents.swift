// The poller's own events: the wake-up, the deadline, Dispatch's handle, and those that end a wait beside C libraries. Lifecycle of the records: made
// when something is watched, freed by `Poller.deinit`.

extension Poller {
    struct InternalRecord {
        enum Role {
            case wakeUp, deadline, mainQueue
            /// Runs at the beginning of a round of libevent's.
            case roundStart
            /// Runs behind everything else of a round in which only internal callbacks have run until then.
            case roundEnd
        }
        let poller: Borrowed<Poller>
        let role: Role
        let descriptor: Int32
        let flags: EventFlags
    }
    typealias Internal = EventRecord<InternalRecord>

    /// From now on the channel wakes the wait. Once, before the first wait.
    func watch(_ channel: borrowing WakeChannel) throws(RunLoop.SourceError) {
        // A pipe that is never read fills up, and a full one has no edges. An eventfd has an edge for every write.
        let isEdge = state.base.reportsEdges && channel.readEnd == channel.writeEnd
        let code = watchInternally(.wakeUp, channel.readEnd, isEdge ? [.read, .persist, .edge] : [.read, .persist])
        if code != 0 { throw .system(operation: "watching the wake-up descriptor", errno: code) }
    }

    /// From now on the deadline ends the wait. Once, before the first wait.
    func watchDeadline() throws(RunLoop.SourceError) {
        let code = watchInternally(.deadline, state.deadline.descriptor, state.deadline.flags)
        if code != 0 { throw .system(operation: "watching a timer descriptor", errno: code) }
        state.deadline.event = Internal.event(state.internals.last!)  // it was just added
    }

    /// Watches the handle that Dispatch offers to run loops. 0 or an errno.
    func watchMainQueue(_ descriptor: Int32) -> Int32 {
        let code = watchInternally(.mainQueue, descriptor, [.read, .persist])
        if code == 0 { (state.watchesMainQueue, state.asksAlways) = (true, true) }
        return code
    }

    private func watchInternally(_ role: InternalRecord.Role, _ descriptor: Int32, _ flags: EventFlags) -> Int32 {
        let record = makeRecord(role, descriptor, flags)
        let code = Internal.event(record).add()
        if code == 0 { state.internals.append(record) } else { Internal.free(record) }
        return code
    }

    func makeRecord(
        _ role: InternalRecord.Role, _ descriptor: Int32 = -1, _ flags: EventFlags = .timeout
    ) -> UnsafeMutablePointer<InternalRecord> {
        let header = InternalRecord(poller: Borrowed(self, keptBy: .event), role: role, descriptor: descriptor, flags: flags)
        let record = Internal.allocate(header)
        assign(record)
        return record
    }

    /// Prepares the event of a record for the base. Beside guests all such events are internal ones.
    func assign(_ record: UnsafeMutablePointer<InternalRecord>) {
        let level = record.pointee.role == .roundEnd ? state.base.leastUrgentLevel : EventBase.ownLevel
        Internal.event(record).assign(
            state.base, record.pointee.descriptor, record.pointee.flags, level: level, isInternal: state.guests != nil,
            Self.ownEventFired, record)
    }

    private static let ownEventFired: EventCallback = { _, _, context in
        let record = context!.assumingMemoryBound(to: InternalRecord.self)
        record.pointee.poller.use { $0.fired(record) }
    }

    private func fired(_ record: UnsafeMutablePointer<InternalRecord>) {
        switch record.pointee.role {
        case .wakeUp: if !record.pointee.flags.contains(.edge) { readReports(of: record.pointee.descriptor) }
        case .deadline: state.deadline.hasFired = true
        case .mainQueue: state.outcome.insert(.mainQueue)
        case .roundStart: return roundDidStart()
        case .roundEnd: return roundDidEnd()
        }
        countCollected()
    }
}
