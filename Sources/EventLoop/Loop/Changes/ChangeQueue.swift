// The changes that other threads have queued for the owner (ChangeBatch.swift). Tests/Models/changes.pml checks every interleaving.

import Synchronization

/// A change that another thread made, for the owner to carry out on its bases and timer queues.
enum LoopChange: Sendable {
    case source(SourceChange)
    case timerJoined(RunLoop.Timer, TimerMembership)
    case timerLeft(RunLoop.Timer, TimerMembership)
    /// The timer's date or tolerance was set.
    case timerChanged(RunLoop.Timer)
    /// The loop's use of the timer ends.
    case timerDied(RunLoop.Timer)
    case observerDied(RunLoop.Observer)
    /// The owner calls a closure.
    case call(LaterCall)

    var item: any AnyObject & Sendable {
        switch self {
        case .source(let change): change.membership
        case .timerJoined(let timer, _), .timerLeft(let timer, _), .timerChanged(let timer), .timerDied(let timer): timer
        case .observerDied(let observer): observer
        case .call(let call): call
        }
    }
}

/// The changes of a source in one loop. When the owner carries out the change, it reads off the membership which modes the source is in.
struct SourceChange: Sendable {
    let membership: SourceMembership
    /// Modes that it has left. It may have joined them again: then it is registered again, and its pending edge is reported again.
    var left = ModeSet()
    /// `watch` has changed.
    var isRewatched = false
}

/// The queue of changes, of which those of one item coalesce (rule 9.12). Under the loop's lock.
struct ChangeQueue: ~Copyable, Sendable {
    private var changes = LinkedQueue<LoopChange>()
    /// The loop's thread carries out nothing more.
    private(set) var isClosed = false
    var isEmpty: Bool { changes.isEmpty }
    var count: Int { changes.count }

    /// Takes the first change; there must be one.
    mutating func popFirst() -> LoopChange {
        let change = changes.popFirst()
        if case .source(let source) = change { source.membership.locked.changeIndex = LinkedQueue<LoopChange>.noIndex }
        return change
    }

    // MARK: Sources
    /// Queues a change of a source's membership, or adds to the one that is queued.
    mutating func enqueueChange(of membership: SourceMembership, left: ModeSet = ModeSet(), isRewatched: Bool = false) {
        if membership.locked.changeIndex == LinkedQueue<LoopChange>.noIndex {
            membership.locked.changeIndex = changes.append(.source(SourceChange(membership: membership)))
        }
        if left.isEmpty && !isRewatched { return }
        changes.update(membership.locked.changeIndex) { change in
            guard case .source(var source) = change else { return assertionFailure("the index of another change") }
            left.forEach { source.left.insert($0) }
            if isRewatched { source.isRewatched = true }
            change = .source(source)
        }
    }

    /// The loop ends, and its sources leave it without a change; or the owner never saw the membership.
    mutating func cancelChange(of membership: SourceMembership) {
        if membership.locked.changeIndex == LinkedQueue<LoopChange>.noIndex { return }
        _ = changes.remove(membership.locked.changeIndex)
        membership.locked.changeIndex = LinkedQueue<LoopChange>.noIndex
    }

    // MARK: Timers
    mutating func enqueueJoin(_ timer: RunLoop.Timer, _ membership: TimerMembership) {
        timer.setChangeIndex(changes.append(.timerJoined(timer, membership)), inMode: membership.modeIndex)
    }

    /// The owner takes a timer out of its only mode at once: a queued change with which it joined, or of its date, is void.
    @inline(__always) mutating func cancelChange(of timer: RunLoop.Timer) {
        if timer.listing.changeIndex != LinkedQueue<LoopChange>.noIndex { _ = changes.remove(timer.listing.changeIndex) }
    }

    /// Queues that a timer has left a mode, or takes back the queued change with which it joined: then true, and its slot is free at once.
    mutating func enqueueLeave(_ timer: RunLoop.Timer, _ membership: TimerMembership) -> Bool {
        if membership.isFiled { changes.append(.timerLeft(timer, membership)) } else { _ = changes.remove(membership.changeIndex) }
        return !membership.isFiled
    }

    /// Queues that a timer has another date, once however often it changes. The change goes behind all others, because timers with equal dates fire
    /// in the order in which the dates were set. If the timer is filed in no mode yet, the changes with which it joins go to the end, and file it
    /// under the new date. Then the result is false, because the owner has been notified of them.
    mutating func enqueueRedate(_ timer: RunLoop.Timer) -> Bool {
        // Under the lock, so a flag that is set means a change that is queued.
        let isQueued = timer.state.value.isRedateQueued
        if TimerLocation(word: timer.location.load(ordering: .acquiring)).isDirect {
            if timer.listing.changeIndex != LinkedQueue<LoopChange>.noIndex {
                changes.moveToEnd(timer.listing.changeIndex)
                return isQueued
            }
        } else {
            let memberships = timer.listedMemberships
            for membership in memberships where !membership.isFiled { changes.moveToEnd(membership.changeIndex) }
            if isQueued { changes.moveToEnd(timer.listing.changeIndex) }
            if isQueued || memberships.allSatisfy({ !$0.isFiled }) { return isQueued }
        }
        timer.state.noteRedateQueued()
        timer.listing.changeIndex = changes.append(.timerChanged(timer))
        return true
    }

    /// Before a thread takes a timer out of modes. True if the timer had another date; then `enqueueRedate` follows if it stays in others.
    mutating func cancelRedate(of timer: RunLoop.Timer) -> Bool {
        if !timer.state.value.isRedateQueued { return false }
        _ = changes.remove(timer.listing.changeIndex)
        timer.forgetQueuedRedate()
        return true
    }

    // MARK: Ends
    mutating func enqueueEnd(_ timer: RunLoop.Timer) { changes.append(.timerDied(timer)) }
    mutating func enqueueEnd(_ observer: RunLoop.Observer) { changes.append(.observerDied(observer)) }
    mutating func enqueueCall(_ body: @escaping @Sendable () -> Void) { changes.append(.call(LaterCall(body))) }

    /// Accepts nothing more if everything was taken. True if so.
    mutating func closeIfEmpty() -> Bool {
        isClosed = changes.isEmpty
        return isClosed
    }
}
