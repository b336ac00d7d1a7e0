// Changes that wait for the owner: what other threads change goes into a queue under the lock, and the owner carries it out
// (RunLoop+Changes.swift).
//
// Changes of one item coalesce, so the queue is as long as there are items whose changes the owner has not seen, however often they change:
// - A membership of a source has one change at most, with everything that happened to it.
// - A timer that joined and left again before the owner looked has none. A timer that the owner knows has one for its dates.

import Synchronization

/// A change that another thread made, for the owner to carry out on its bases and timer queues.
enum LoopChange: Sendable {
    case source(SourceChange)
    case timerJoined(RunLoop.Timer, TimerMemberships.Membership)
    case timerLeft(RunLoop.Timer, TimerMemberships.Membership)
    /// The timer's date or tolerance was set.
    case timerChanged(RunLoop.Timer)
    /// The loop's use of the timer ends.
    case timerDied(RunLoop.Timer)
    case observerDied(RunLoop.Observer)
}

/// What happened to a source in one loop. The modes that it is in, and whether it is in any, are read off the membership when the change
/// is carried out.
struct SourceChange: Sendable {
    let membership: SourceMembership
    /// Modes that it has left. It may have joined them again: then it is registered anew, and hears of a pending edge again.
    var left = ModeSet()
    /// `watch` has changed.
    var isRewatched = false
}

extension LoopShared {
    /// Queues a change of a source's membership, or adds to the one that is queued.
    mutating func noteChange(of membership: SourceMembership, left modeIndex: Int? = nil, isRewatched: Bool = false) {
        if membership.changePlace == LinkedQueue<LoopChange>.noPlace {
            membership.changePlace = changes.append(.source(SourceChange(membership: membership)))
        }
        if modeIndex == nil && !isRewatched { return }
        changes.update(membership.changePlace) { change in
            guard case .source(var source) = change else { return assertionFailure("the place of another change") }
            if let modeIndex { source.left.insert(modeIndex) }
            if isRewatched { source.isRewatched = true }
            change = .source(source)
        }
    }

    /// The loop ends: its sources leave it without a change.
    mutating func cancelChange(of membership: SourceMembership) {
        if membership.changePlace == LinkedQueue<LoopChange>.noPlace { return }
        _ = changes.remove(membership.changePlace)
        membership.changePlace = LinkedQueue<LoopChange>.noPlace
    }

    /// Queues that a timer has joined a mode.
    mutating func noteJoined(_ timer: RunLoop.Timer, _ membership: TimerMemberships.Membership) {
        let place = changes.append(.timerJoined(timer, membership))
        timer.memberships.setChangePlace(place, inMode: membership.modeIndex)
    }

    /// The owner takes a timer out at once: a queued change with which it joined is void.
    mutating func cancelJoin(of timer: RunLoop.Timer, in modeIndex: Int) {
        guard let place = timer.memberships.changePlace(inMode: modeIndex) else { return }
        _ = changes.remove(place)
    }

    /// Queues that a timer has left a mode, or takes back the queued change with which it joined. `membership` is what it was.
    mutating func noteLeft(_ timer: RunLoop.Timer, _ membership: TimerMemberships.Membership) {
        if membership.changePlace == LinkedQueue<LoopChange>.noPlace {
            changes.append(.timerLeft(timer, membership))
        } else {
            // The owner has never filed it there, so the slot is free at once.
            _ = changes.remove(membership.changePlace)
            modes[membership.modeIndex].freeTimerSlotLocked(membership.slot)
        }
    }
}
