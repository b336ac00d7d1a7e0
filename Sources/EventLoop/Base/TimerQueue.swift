/// The timers of one mode, as dates with tolerances: which of them are due, and how long the thread may sleep. The caller identifies its timers by
/// slot numbers, and passes an opaque `owner` for each. Timers with equal dates are due in the order in which the dates were set. If a date moves
/// later, its heap entry stays until it reaches the top, where it is filed under the current date. So an idle timeout that every request pushes back
/// needs no heap operation. An entry is never later than its timer's date. A timer that is filed enters a heap when somebody asks what is due, or how
/// long to sleep. So a timeout that is cancelled in the pass that set it needs none either.
///
/// A timer with a tolerance is in two heaps: one by date, to find what is due when the thread is awake, and one by date plus tolerance, to
/// find how long the thread may sleep. That wakes the thread as rarely as possible, never early and never later than a tolerance allows.
struct TimerQueue: ~Copyable {
    // Neither is private because of the bug that PortQueue.swift describes.
    struct Slot: BitwiseCopyable {
        var date: Int64 = .max
        var owner: UnsafeRawPointer?
        var sequence: UInt32 = 0
        /// In the heap by date, or among the new ones; `absent` if the timer is not filed.
        var position = HeapPositions.absent
        @inline(__always) var isFiled: Bool { position != HeapPositions.absent }
        @inline(__always) var isNew: Bool { position & TimerQueue.newBit != 0 && isFiled }
    }

    /// What a timer with a tolerance has beside its slot.
    struct Softness: BitwiseCopyable {
        var tolerance: Int64 = 0
        var hardPosition = HeapPositions.absent
    }

    /// As many as there is memory for.
    private var slots = PlainList<Slot>()
    /// Empty until the first timer with a tolerance. The timers of slots beyond its end have none.
    private var softness = PlainList<Softness>()
    /// Filed timers that are in no heap yet. Many leave before anybody asks what is due, and then the heaps need not change for them.
    private var new = PlainList<UInt32>()
    private static let newBit: UInt32 = 1 << 31
    private var strict = DeadlineHeap()
    private var soft = DeadlineHeap()
    private var hard = DeadlineHeap()
    private var lastSequence: UInt32 = 0
    /// Whether no timer is filed. A timer that fires is not. One that has lost its date may count as filed until its entry reaches the top.
    var isEmpty: Bool { strict.isEmpty && soft.isEmpty && new.count == 0 }

    /// Adds a timer, and files it unless its date is `Int64.max`, which means no date. A timer without a date waits for `reschedule`.
    mutating func file(_ slot: UInt32, date: Int64, tolerance: Int64, owner: UnsafeRawPointer) {
        let index = Int(slot)
        if index >= slots.count { slots.extend(to: index + 1, repeating: Slot()) }
        if slots[index].isFiled { unfile(slot) }
        lastSequence &+= 1
        slots[index].date = date
        slots[index].owner = owner
        slots[index].sequence = lastSequence
        if tolerance != self.tolerance(slot) { setTolerance(slot, tolerance) }
        if date != .max { insert(slot) }
    }

    /// Changes a timer's date. O(1) if the new date is later or the timer is new, else O(log n). Returns false if the slot has no timer.
    @discardableResult
    @inline(__always) mutating func reschedule(_ slot: UInt32, date: Int64) -> Bool {
        let index = Int(slot)
        guard index < slots.count, slots[index].owner != nil else { return false }
        lastSequence &+= 1
        slots[index].sequence = lastSequence
        // An equal date does not count as later: the entry would keep its old position among equal dates.
        let isLater = date > slots[index].date
        slots[index].date = date
        if slots[index].isFiled { if !isLater { refile(slot) } } else if date != .max { insertAgain(slot) }
        return true
    }

    /// Files a timer that `popDue` has returned, unless it has been filed again. At its position among equal dates, if its date is the same.
    mutating func putBack(_ slot: UInt32, date: Int64) {
        let index = Int(slot)
        guard index < slots.count, slots[index].owner != nil, !slots[index].isFiled else { return }
        if date == slots[index].date && date != .max { insertAgain(slot) } else { reschedule(slot, date: date) }
    }

    /// Unfiles a timer until `reschedule`.
    mutating func setAside(_ slot: UInt32) { if Int(slot) < slots.count && slots[Int(slot)].isFiled { unfile(slot) } }

    mutating func remove(_ slot: UInt32) {
        let index = Int(slot)
        guard index < slots.count, slots[index].owner != nil else { return }
        if slots[index].isFiled { unfile(slot) }
        slots[index].owner = nil
    }

    /// Unfiles the first due timer, by date and then by insertion, until `reschedule`, and returns its owner; nil if no date is at `now` or before.
    mutating func popDue(_ now: Int64) -> (slot: UInt32, owner: UnsafeRawPointer)? {
        refileMoved(upTo: now)
        guard let first = firstEntry, first.deadline <= now else { return nil }
        unfile(first.slot)
        return (first.slot, slots[Int(first.slot)].owner!)  // filed slots have an owner
    }

    mutating func hasDue(_ now: Int64) -> Bool {
        if isEmpty { return false }
        if new.count != 0 { sortNew() }
        if earliestEntry > now { return false }
        refileMoved(upTo: now)
        return earliestEntry <= now
    }

    /// The earliest date, and whose it is; nil if no timer has a date. O(1), and O(log n) for each date that has moved later since.
    mutating func earliest() -> (date: Int64, owner: UnsafeRawPointer)? {
        refileMoved(upTo: .max)
        guard let top = firstEntry else { return nil }
        return (top.deadline, slots[Int(top.slot)].owner!)  // filed slots have an owner
    }

    /// Until when the thread may sleep; `Int64.max` if no timer has a date.
    mutating func nextWake() -> Int64 {
        if isEmpty { return .max }
        refileMoved(upTo: .max)
        return min(strict.top?.deadline ?? .max, hard.top?.deadline ?? .max)
    }

    private var firstEntry: DeadlineHeap.Entry? {
        guard let one = strict.top else { return soft.top }
        guard let other = soft.top else { return one }
        return other.precedes(one) ? other : one
    }

    /// Never later than the earliest date.
    private var earliestEntry: Int64 { min(strict.top?.deadline ?? .max, soft.top?.deadline ?? .max) }

    @inline(never) private mutating func sortNew() {
        let count = new.count
        // In the order in which they came: dates that rise, as those of timeouts with one duration do, then stay at the end of the heap.
        for index in 0..<count { sort(new[index]) }
        new.removeAll()
        // Not worth keeping for a time at which everything is new again.
        if count > 1_024 { new = PlainList() }
    }

    /// Refiles top entries whose dates have moved later, until each top entry that is not after `limit` has its timer's date.
    private mutating func refileMoved(upTo limit: Int64) {
        if new.count != 0 { sortNew() }
        // Each ends: an iteration refiles an entry under its date.
        while let top = strict.top, top.deadline <= limit, slots[Int(top.slot)].date != top.deadline { refile(top.slot) }
        while let top = soft.top, top.deadline <= limit, slots[Int(top.slot)].date != top.deadline { refile(top.slot) }
        while let top = hard.top, top.deadline != hardDeadline(top.slot) { refile(top.slot) }
    }

    private func tolerance(_ slot: UInt32) -> Int64 { Int(slot) < softness.count ? softness[Int(slot)].tolerance : 0 }
    private func hardDeadline(_ slot: UInt32) -> Int64 { slots[Int(slot)].date.addingSaturated(softness[Int(slot)].tolerance) }

    // MARK: Positions in the heaps
    @inline(__always) private var positions: HeapPositions {
        HeapPositions(first: UnsafeMutableRawPointer(slots.first) + Self.positionOffset, stride: MemoryLayout<Slot>.stride)
    }

    private var hardPositions: HeapPositions {
        HeapPositions(first: UnsafeMutableRawPointer(softness.first) + Self.hardOffset, stride: MemoryLayout<Softness>.stride)
    }

    private static var positionOffset: Int { MemoryLayout<Slot>.offset(of: \.position)! }
    private static var hardOffset: Int { MemoryLayout<Softness>.offset(of: \.hardPosition)! }

    @inline(__always) private mutating func insert(_ slot: UInt32) {
        slots[Int(slot)].position = Self.newBit | UInt32(truncatingIfNeeded: new.count)
        new.append(slot)
    }

    /// Out of line, because most dates are set while the timer is filed.
    @inline(never) private mutating func insertAgain(_ slot: UInt32) { insert(slot) }

    private mutating func sort(_ slot: UInt32) {
        slots[Int(slot)].position = HeapPositions.absent
        let entry = slots[Int(slot)]
        // It has lost its date since it was filed.
        if entry.date == .max { return }
        if tolerance(slot) == 0 { return strict.insert(slot, deadline: entry.date, sequence: entry.sequence, positions) }
        soft.insert(slot, deadline: entry.date, sequence: entry.sequence, positions)
        hard.insert(slot, deadline: hardDeadline(slot), sequence: entry.sequence, hardPositions)
    }

    private mutating func refile(_ slot: UInt32) {
        let entry = slots[Int(slot)]
        if entry.date == .max { return unfile(slot) }
        if entry.isNew { return }  // it is sorted by the date that it has then
        if tolerance(slot) == 0 { return strict.move(slot, deadline: entry.date, sequence: entry.sequence, positions) }
        soft.move(slot, deadline: entry.date, sequence: entry.sequence, positions)
        hard.move(slot, deadline: hardDeadline(slot), sequence: entry.sequence, hardPositions)
    }

    private mutating func unfile(_ slot: UInt32) {
        if slots[Int(slot)].isNew { return forgetNew(slot) }
        if tolerance(slot) == 0 { return strict.remove(slot, positions) }
        soft.remove(slot, positions)
        hard.remove(slot, hardPositions)
    }

    /// The last one takes its place.
    private mutating func forgetNew(_ slot: UInt32) {
        let position = slots[Int(slot)].position
        slots[Int(slot)].position = HeapPositions.absent
        let last = new.popLast()!  // `slot` is there
        if last == slot { return }
        new[Int(position & ~Self.newBit)] = last
        slots[Int(last)].position = position
    }

    /// Sets the tolerance of a timer that is not filed.
    @inline(never) private mutating func setTolerance(_ slot: UInt32, _ tolerance: Int64) {
        if Int(slot) >= softness.count { softness.extend(to: slots.count, repeating: Softness()) }
        softness[Int(slot)].tolerance = tolerance
    }
}
