// The queues of blocks and performs, under the lock. Each call takes a fixed number of steps for each mode that a closure is queued for, however
// many closures are queued.

import Synchronization

extension RunLoop {
    /// The ticket of a closure that nobody waits for; nil if it is queued for one mode.
    static func ticket(for modes: [Mode]) -> WorkTicket? { modes.count > 1 ? WorkTicket() : nil }

    /// Puts a closure where its modes find it. Under the lock.
    func enqueueLocked(_ item: __owned WorkItem, _ modes: [Mode], _ shared: inout LoopShared, isBlock: Bool) {
        if let ticket = item.ticket {
            ticket.isBlock = isBlock
            for name in modes { enqueueLocked(item, ticket, name, &shared) }
        } else if modes.first == .common {
            if isBlock { shared.blocks.plain.append(item) } else { shared.performs.plain.append(item) }
            noteCommonQueueingLocked()
            changeCommonPopulationLocked(by: 1)
        } else if let name = modes.first {
            let mode = shared.makeMode(name)
            if isBlock { mode.blocks.plain.append(item) } else { mode.performs.plain.append(item) }
            mode.changePopulationLocked(by: 1)
            mode.countQueueingLocked()
        }
    }

    private func enqueueLocked(_ item: WorkItem, _ ticket: WorkTicket, _ name: Mode, _ shared: inout LoopShared) {
        shared.workSteps += 1
        if name == .common {
            if ticket.isIn(WorkPlace.common) { return }
            let place = ticket.isBlock ? shared.blocks.ticketed.append(item) : shared.performs.ticketed.append(item)
            ticket.add(WorkPlace(modeIndex: WorkPlace.common, place: place))
            noteCommonQueueingLocked()
            changeCommonPopulationLocked(by: 1)
        } else {
            let mode = shared.makeMode(name)
            if ticket.isIn(mode.index) { return }
            let place = ticket.isBlock ? mode.blocks.ticketed.append(item) : mode.performs.ticketed.append(item)
            ticket.add(WorkPlace(modeIndex: mode.index, place: place))
            mode.countQueueingLocked()
            mode.changePopulationLocked(by: 1)
        }
    }

    /// Takes a closure out of every queue that has it. Nil if none does. Under the lock; the caller lets go of it outside.
    func takeTicketedLocked(_ ticket: WorkTicket, _ shared: inout LoopShared) -> WorkItem? {
        guard let first = ticket.first else { return nil }
        let item = removeLocked(ticket, first, &shared)
        for place in ticket.others { _ = removeLocked(ticket, place, &shared) }
        ticket.removePlaces()
        return item
    }

    private func removeLocked(_ ticket: WorkTicket, _ place: WorkPlace, _ shared: inout LoopShared) -> WorkItem {
        shared.workSteps += 1
        if place.modeIndex == WorkPlace.common {
            changeCommonPopulationLocked(by: -1)
            return ticket.isBlock ? shared.blocks.ticketed.remove(place.place) : shared.performs.ticketed.remove(place.place)
        }
        let mode = shared.modes[place.modeIndex]
        mode.changePopulationLocked(by: -1)
        return ticket.isBlock ? mode.blocks.ticketed.remove(place.place) : mode.performs.ticketed.remove(place.place)
    }

    /// The place of the first closure with a ticket that may be performed in the mode; greater than any other if there is none. Under the lock.
    func firstTicketedLocked(_ mode: ModeState, _ isCommon: Bool, _ shared: borrowing LoopShared, isBlock: Bool) -> UInt64 {
        let own = isBlock ? mode.blocks.firstTicketed : mode.performs.firstTicketed
        if !isCommon { return own }
        return min(own, isBlock ? shared.blocks.firstTicketed : shared.performs.firstTicketed)
    }

    /// Takes the first closure with a ticket that may be performed in the mode, if its place comes before `bound`. Under the lock.
    func popTicketedLocked(
        _ mode: ModeState, _ isCommon: Bool, _ shared: inout LoopShared, isBlock: Bool, before bound: UInt64
    ) -> WorkItem? {
        let first = firstTicketedLocked(mode, isCommon, shared, isBlock: isBlock)
        if first >= bound { return nil }
        let isOwn = first == (isBlock ? mode.blocks.firstTicketed : mode.performs.firstTicketed)
        let ticket =
            if isOwn {
                isBlock ? mode.blocks.ticketed.withFirst { $0.ticket } : mode.performs.ticketed.withFirst { $0.ticket }
            } else {
                isBlock ? shared.blocks.ticketed.withFirst { $0.ticket } : shared.performs.ticketed.withFirst { $0.ticket }
            }
        return takeTicketedLocked(ticket!!, &shared)  // there is a first one, and it is among those with a ticket
    }

    /// Takes every closure of every mode, in no order. Under the lock.
    func takeAllWorkLocked(_ shared: inout LoopShared) -> [WorkItem] {
        var all: [WorkItem] = []
        for mode in shared.modes {
            mode.changePopulationLocked(by: -(mode.blocks.plain.count + mode.performs.plain.count))
            all += mode.blocks.plain.removeAll() + mode.performs.plain.removeAll()
            for isBlock in [true, false] {
                // Ends: one goes a turn.
                while let item = popTicketedLocked(mode, true, &shared, isBlock: isBlock, before: .max) { all.append(item) }
            }
        }
        changeCommonPopulationLocked(by: -(shared.blocks.plain.count + shared.performs.plain.count))
        all += shared.blocks.plain.removeAll() + shared.performs.plain.removeAll()
        return all
    }

    @inline(__always)
    func noteCommonQueueingLocked() { commonQueueings.store(commonQueueings.load(ordering: .relaxed) &+ 1, ordering: .releasing) }

    /// Under the lock, so a load and a store will do.
    @inline(__always)
    func changeCommonPopulationLocked(by change: Int) {
        commonPopulation.store(commonPopulation.load(ordering: .relaxed) &+ change, ordering: .releasing)
    }
}
