// The poller's own events: the wake-up, the deadline, Dispatch's handle, and those that end a wait beside C libraries. Lifecycle of the records: made
// when something is watched, freed by `Poller.deinit`.

extension Poller {
    struct InternalRecord {
        enum Role {
            /// The second is read, because it is watched as a level.
            case wakeUp, wakeUpToRead
            case deadline, mainQueue
            /// Runs at the beginning of a round of libevent's.
            case roundStart
            /// Runs behind everything else of a round in which only internal callbacks have run until then.
            case roundEnd
        }
        let poller: Borrowed<Poller>
        let role: Role
        let descriptor: Int32
        let flags: EventFlags
        let level: Int32
    }
    typealias Internal = EventRecord<InternalRecord>

    /// From now on the channel wakes the wait. Once, before the first wait.
    func watch(_ channel: borrowing WakeChannel) throws(RunLoop.SourceError) {
        // A pipe that is never read fills up, and a full one has no edges. An eventfd has an edge for every write.
        let isEdge = state.base.reportsEdges && channel.readEnd == channel.writeEnd
        let flags: EventFlags = isEdge ? [.read, .persist, .edge] : [.read, .persist]
        let code = watchInternally(isEdge ? .wakeUp : .wakeUpToRead, channel.readEnd, flags)
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
        assign(record)
        let code = Internal.event(record).add()
        if code == 0 { state.internals.append(record) } else { Internal.free(record) }
        return code
    }

    func makeRecord(
        _ role: InternalRecord.Role, _ descriptor: Int32 = -1, _ flags: EventFlags = .timeout, level: Int32 = EventBase.ownLevel
    ) -> UnsafeMutablePointer<InternalRecord> {
        Internal.allocate(
            InternalRecord(poller: Borrowed(self, keptBy: .event), role: role, descriptor: descriptor, flags: flags, level: level))
    }

    /// Prepares the event of a record for the base. Beside guests all such events are internal ones.
    func assign(_ record: UnsafeMutablePointer<InternalRecord>) {
        Internal.event(record).assign(
            state.base, record.pointee.descriptor, record.pointee.flags, level: record.pointee.level, isInternal: state.guests != nil,
            Self.ownEventFired, record)
    }

    private static let ownEventFired: EventCallback = { descriptor, _, context in
        let record = context!.assumingMemoryBound(to: InternalRecord.self)
        record.pointee.poller.use { $0.fired(record.pointee.role, descriptor) }
    }

    private func fired(_ role: InternalRecord.Role, _ descriptor: Int32) {
        switch role {
        case .wakeUp: break
        case .wakeUpToRead: readReports(of: descriptor)
        case .deadline: state.deadline.hasFired = true
        case .mainQueue: state.outcome.insert(.mainQueue)
        case .roundStart: return roundDidStart()
        case .roundEnd: return roundDidEnd()
        }
        countCollected()
    }
}
