// Lifecycle of the storage: an array of references, grown by doubling under the lock. Threads read it without, so outgrown arrays and modes stay.

import Synchronization

extension RunLoop.Mode {
    /// The words of the name. Two with the same words, both of which exist, have the same text: short ones are in the words, others share memory. Not
    /// the other way round.
    // SAFETY: a string is two words, which are only compared.
    @inline(__always) var nameBits: (UInt64, UInt64) { unsafeBitCast(rawValue, to: (UInt64, UInt64).self) }
}

/// Every mode that a loop ever had, by index; the default mode first. Any thread reads it without a lock. Modes are only added, under the lock.
final class ModeTable: @unchecked Sendable {
    // SAFETY: `array` and `countWord` are atomics, and an entry below the count never changes; the rest is guarded by the loop's lock.
    private typealias Entries = UnsafeMutablePointer<Unmanaged<ModeState>>
    /// The index that stands for the common modes.
    static let common = -1
    /// The closures and counts of all common modes.
    let common = ClosureQueues()
    private static let firstCapacity = 4
    private let array: Atomic<Entries>
    private let countWord = Atomic<Int>(0)

    // SAFETY: read and written under the loop's lock only.
    /// The modes after the first `searchedWithoutLock`.
    private var others: [RunLoop.Mode: Int] = [:]
    private var outgrown: [Entries] = []
    /// In the order in which they became common, which is the order of callouts for each of them.
    @exclusivity(unchecked) private(set) var commonNames: [RunLoop.Mode] = [.default]

    init() {
        array = Atomic(.allocate(capacity: Self.firstCapacity))
        makeLocked(.default)
    }

    deinit {
        let entries = array.load(ordering: .relaxed)
        for index in 0..<count { entries[index].release() }
        entries.deallocate()
        for entries in outgrown { entries.deallocate() }
    }

    // MARK: Any thread
    @inline(__always) var count: Int { countWord.load(ordering: .acquiring) }

    /// A mode, borrowed: modes live as long as the table.
    @inline(__always) func reference(_ index: Int) -> Borrowed<ModeState> {
        assert(index >= 0 && index < count, "an index comes from a mode of this loop")
        return Borrowed(array.load(ordering: .acquiring)[index], keptBy: .loop)
    }

    @inline(__always) subscript(index: Int) -> ModeState { reference(index).object }
    /// Calls `body` with each mode, borrowed, by index.
    @inline(__always) func forEach(_ body: (ModeState) -> Void) { for index in 0..<count { reference(index).use(body) } }
    /// Holds on all modes, by index.
    var all: [ModeState] { (0..<count).map { self[$0] } }

    /// So many modes are found by their names without the lock. Few programs have more.
    private static let searchedWithoutLock = 8

    @inline(__always) func referenceAmongFirst(_ name: RunLoop.Mode) -> Borrowed<ModeState>? {
        let bits = name.nameBits
        let count = min(count, Self.searchedWithoutLock)
        let entries = array.load(ordering: .acquiring)
        // Few modes with short or literal names: comparing words is faster than comparing strings, which is faster than hashing.
        for index in 0..<count {
            let mode = Borrowed(entries[index], keptBy: .loop)
            if mode.use({ $0.nameBits == bits }) { return mode }
        }
        return referenceByText(name)
    }

    @inline(never) private func referenceByText(_ name: RunLoop.Mode) -> Borrowed<ModeState>? {
        for index in 0..<min(count, Self.searchedWithoutLock) where reference(index).use({ $0.name == name }) { return reference(index) }
        return nil
    }

    // MARK: Under the lock
    /// The modes that a name stands for.
    func namesLocked(_ name: RunLoop.Mode) -> [RunLoop.Mode] { name == .common ? commonNames : [name] }
    func referenceLocked(_ name: RunLoop.Mode) -> Borrowed<ModeState>? { referenceAmongFirst(name) ?? others[name].map(reference) }
    func findLocked(_ name: RunLoop.Mode) -> ModeState? { referenceLocked(name)?.object }
    @discardableResult
    func makeLocked(_ name: RunLoop.Mode) -> ModeState { madeLocked(name).object }

    /// The modes of a set in the order of rule 3.1: the common ones, as they became common, and then the others.
    func inOrderLocked(_ set: ModeSet) -> ArraySlice<ModeState> {
        var others = set
        var modes = commonNames.compactMap { findLocked($0) }.filter { others.remove($0.index) }[...]
        others.forEach { modes.append(self[$0]) }
        return modes
    }

    func madeLocked(_ name: RunLoop.Mode) -> Borrowed<ModeState> {
        if count > 0, let mode = referenceLocked(name) { return mode }
        let index = count
        let mode = ModeState(name: name, index: index, isCommon: commonNames.contains(name))
        // The capacity is a power of two.
        if index >= Self.firstCapacity && index.nonzeroBitCount == 1 { growLocked(from: index) }
        (array.load(ordering: .relaxed) + index).initialize(to: .passRetained(mode))
        countWord.store(index + 1, ordering: .releasing)
        if index >= Self.searchedWithoutLock { others[name] = index }
        return Borrowed(mode, keptBy: .loop)
    }

    private func growLocked(from capacity: Int) {
        let old = array.load(ordering: .relaxed)
        let new = Entries.allocate(capacity: capacity * 2)
        new.initialize(from: old, count: capacity)
        outgrown.append(old)
        array.store(new, ordering: .releasing)
    }

    /// Makes a mode one of the common ones, for good. False if it is one.
    func addCommonNameLocked(_ name: RunLoop.Mode) -> Bool {
        if commonNames.contains(name) { return false }
        commonNames.append(name)
        common.countQueueingLocked()
        findLocked(name)?.isCommon.store(true, ordering: .releasing)
        return true
    }

    // MARK: Closures, under the lock
    private func queues(_ index: Int) -> ClosureQueues { index == Self.common ? common : self[index] }

    func enqueueLocked(_ item: __owned WorkItem, _ names: [RunLoop.Mode], _ kind: ClosureKind) {
        if let ticket = item.ticket { return names.forEach { enqueueLocked(item, ticket, $0, kind) } }
        guard let name = names.first else { return }
        if name == .common { common.enqueueLocked(item, kind) } else { makeLocked(name).enqueueLocked(item, kind) }
    }

    private func enqueueLocked(_ item: WorkItem, _ ticket: WorkTicket, _ name: RunLoop.Mode, _ kind: ClosureKind) {
        let index = name == .common ? Self.common : makeLocked(name).index
        if ticket.isIn(index) { return }
        ticket.add(WorkPosition(modeIndex: index, queueIndex: queues(index).enqueueTicketedLocked(item, kind), kind: kind))
    }

    /// Takes a closure out of every queue that has it. Nil if none does. The caller releases it outside the lock.
    func takeTicketedLocked(_ ticket: WorkTicket) -> WorkItem? {
        guard let first = ticket.positions.first else { return nil }
        let item = removeLocked(first)
        for position in ticket.positions.others { _ = removeLocked(position) }
        ticket.removePositions()
        return item
    }

    private func removeLocked(_ at: WorkPosition) -> WorkItem { queues(at.modeIndex).removeLocked(at.queueIndex, at.kind) }

    /// The sequence number of the first closure with a ticket that the mode may perform; greater than any other if there is none. `isCommon`, whether
    /// it performs what is queued for the common modes, is the same for a whole walk: a handler that makes the mode a common one would otherwise let
    /// closures with a ticket overtake those without.
    func firstTicketedLocked(_ mode: ModeState, isCommon: Bool, _ kind: ClosureKind) -> UInt64 {
        let own = mode.firstTicketedLocked(kind)
        return isCommon ? min(own, common.firstTicketedLocked(kind)) : own
    }

    /// Takes the first closure with a ticket that the mode may perform, if its sequence number is below `bound`.
    func popTicketedLocked(_ mode: ModeState, isCommon: Bool, _ kind: ClosureKind, before bound: UInt64) -> WorkItem? {
        let first = firstTicketedLocked(mode, isCommon: isCommon, kind)
        if first >= bound { return nil }
        return first == mode.firstTicketedLocked(kind)
            ? removeFirstTicketedLocked(mode, mode.index, kind) : removeFirstTicketedLocked(common, Self.common, kind)
    }

    /// Takes the first closure with a ticket of a queue, out of every queue that has it. Nil if there is none.
    private func removeFirstTicketedLocked(_ queues: ClosureQueues, _ index: Int, _ kind: ClosureKind) -> WorkItem? {
        guard let item = queues.removeFirstTicketedLocked(kind), let ticket = item.ticket else { return nil }
        if let first = ticket.positions.first, first.modeIndex != index { _ = removeLocked(first) }
        for position in ticket.positions.others where position.modeIndex != index { _ = removeLocked(position) }
        ticket.removePositions()
        return item
    }

    /// Takes every closure of every mode, in no order, also those that the owner has taken and not performed. Owning thread only.
    func takeAllClosuresLocked() -> [WorkItem] {
        var taken: [WorkItem] = []
        for index in Self.common..<count {
            let queues = queues(index)
            queues.takePlainBlocksLocked(into: &queues.performing)
            queues.takePlainPerformsLocked()
            taken += queues.performing.removeAll()
            for kind in ClosureKind.allCases {
                while let item = removeFirstTicketedLocked(queues, index, kind) { taken.append(item) }  // ends: each iteration removes one
            }
        }
        return taken
    }
}
