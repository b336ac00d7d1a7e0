// The sources of a mode that other threads have made ready. Both lists are under the loop's lock.

/// Custom sources with a pending signal, in no order.
struct SignaledSources: ~Copyable {
    /// Retained. A field of its own, because most passes have one signal: no array, and no second count of its reference.
    private var single: Unmanaged<SourceMembership>?
    private var others: ContiguousArray<SourceMembership> = []
    deinit { single?.release() }

    @inline(__always) mutating func add(_ membership: SourceMembership, inMode index: Int) {
        guard membership.locked.queuedModes.insert(index) else { return }
        // The first of all, so that those whose ticks are equal stay in their order.
        if single == nil && others.isEmpty { single = .passRetained(membership) } else { addFurther(membership) }
    }

    @inline(never) private mutating func addFurther(_ membership: SourceMembership) { others.append(membership) }

    /// Takes out a source that has left the mode. The caller retains it.
    mutating func remove(_ membership: SourceMembership, inMode index: Int) {
        guard membership.locked.queuedModes.remove(index) else { return }
        if single?.toOpaque() == Unmanaged.passUnretained(membership).toOpaque() { return single.take()!.release() }  // compared just now
        others.removeAll { $0 === membership }
    }

    /// Takes the only source of the list, which the caller releases. Nil if there is none, or if there are several.
    @inline(__always) mutating func takeSingle(inMode index: Int) -> Unmanaged<SourceMembership>? {
        guard let taken = single, others.isEmpty else { return nil }
        single = nil
        Borrowed(taken, keptBy: .caller).use { _ = $0.locked.queuedModes.remove(index) }
        return taken
    }

    /// Moves all into `batch`, which is empty, in the order in which they are performed.
    mutating func takeAll(into batch: inout ContiguousArray<SourceMembership>, inMode index: Int) {
        swap(&batch, &others)
        if let single = single.take() { batch.insert(single.takeRetainedValue(), at: 0) }
        var isStale = false
        for position in batch.indices {
            batch[position].locked.queuedModes.remove(index)
            if !batch[position].custom.isSignaled { isStale = true }
        }
        // Those were performed in another mode or loop. A later signal is for the next pass.
        if isStale { batch.removeAll { !$0.custom.isSignaled } }
        if batch.count > 1 { batch.sort { $0.custom.goesBefore($1.custom) } }
    }

    /// Whether a source has a signal. One that was performed in another mode or loop stays in the list without.
    var hasSignal: Bool {
        single.map { Borrowed($0, keptBy: .list).use { $0.custom.isSignaled } } ?? false || others.contains { $0.custom.isSignaled }
    }
}

/// Ports that have messages, and some that had. They are served in turn.
struct MessagedPorts: Sendable {
    private var list: ContiguousArray<SourceMembership> = []
    /// The index of the port whose turn is next.
    private var next = 0

    @inline(__always) mutating func add(_ membership: SourceMembership, inMode index: Int) {
        if membership.locked.queuedModes.insert(index) { list.append(membership) }
    }

    /// Takes out a port that has left the mode, or is served by another loop's thread.
    mutating func remove(_ membership: SourceMembership, inMode index: Int) {
        guard membership.locked.queuedModes.remove(index), let position = list.firstIndex(where: { $0 === membership }) else { return }
        list.remove(at: position)
        if position < next { next -= 1 }
    }

    /// The next port that has messages and has had no turn in this step. It stays in the list, where a nested run finds it. `turns` is how many
    /// turns the step has left; nil before the first. A port that gets its first message in the step has none.
    mutating func takeTurn(inStep step: UInt64, mode index: Int, _ turns: inout Int?) -> SourceMembership? {
        if turns == nil { removePortsWithoutMessages(inMode: index) }
        let left = turns ?? list.count
        if left == 0 { return nil }
        for _ in 0..<list.count {
            if next >= list.count { next = 0 }
            let position = next
            next += 1
            // A port that has been emptied since stays until the next delivery.
            guard Borrowed(list[position], keptBy: .list).use({ $0.source.hasMessage }) else { continue }
            let membership = list[position]
            // A handler may have changed the order of the list. A step later than `step` means a turn in a nested run.
            if membership.owned.messageStep >= step { continue }
            membership.owned.messageStep = step
            turns = left - 1
            return membership
        }
        return nil
    }

    /// Keeps the order, and with it the turns: the last port must not move to a position that has had its turn.
    private mutating func removePortsWithoutMessages(inMode index: Int) {
        if list.allSatisfy({ $0.source.hasMessage }) { return }
        var (position, passed) = (0, 0)
        list.removeAll { membership in
            defer { position += 1 }
            if membership.source.hasMessage { return false }
            membership.locked.queuedModes.remove(index)
            if position < next { passed += 1 }
            return true
        }
        next -= passed
    }

    var hasMessage: Bool { list.contains { $0.source.hasMessage } }
}

extension SourceMembership {
    /// Only custom sources are signaled by hand.
    var custom: RunLoop.CustomSource { unsafeDowncast(source, to: RunLoop.CustomSource.self) }
}
