// The timers of one mode, as numbers: which of them are due, and how long the thread may sleep. It knows no clock, no thread and no
// callout.

/// A queue of dates with tolerances. The caller identifies its timers by slot numbers, and passes an opaque `owner` for each. Timers with
/// equal dates are due in the order in which the dates were set.
///
/// If a date moves later, its heap entry is left where it is. When the entry reaches the top, it is filed under the current date. So an
/// idle timeout that every request pushes back needs no heap operations. An entry is never later than its timer's date.
///
/// A timer with a tolerance is in two heaps: one by date, to find what is due when the thread is awake, and one by date plus tolerance, to
/// find how long the thread may sleep. That wakes the thread as rarely as possible, never early and never later than a tolerance allows.
struct TimerQueue: ~Copyable {
    private struct Slot {
        var date: Int64 = .max
        var tolerance: Int64 = 0
        var owner: UnsafeRawPointer?
        var sequence: UInt32 = 0
        var isFiled = false
    }

    private var slots: UnsafeMutablePointer<Slot>
    private var slotCapacity = 0
    private var strict = DeadlineHeap()
    private var soft = DeadlineHeap()
    private var hard = DeadlineHeap()
    private var lastSequence: UInt32 = 0

    init() { slots = .allocate(capacity: 0) }
    deinit { slots.deallocate() }

    /// Whether no timer is filed. A timer is not filed while it fires. A timer that has lost its date may count as filed until its entry
    /// reaches the top.
    var isEmpty: Bool { strict.isEmpty && soft.isEmpty }

    /// Adds a timer, and files it unless its date is `Int64.max`, which means no date. A timer without a date waits for `reschedule`.
    mutating func file(_ slot: UInt32, date: Int64, tolerance: Int64, owner: UnsafeRawPointer) {
        reserve(slot)
        let index = Int(slot)
        if slots[index].isFiled { unfile(slot) }
        lastSequence &+= 1
        slots[index] = Slot(date: date, tolerance: tolerance, owner: owner, sequence: lastSequence)
        if date != .max { insert(slot) }
    }

    /// Changes a timer's date. O(1) if the new date is later, O(log n) if it is earlier. Returns false if the slot has no timer.
    @discardableResult
    mutating func reschedule(_ slot: UInt32, date: Int64) -> Bool {
        let index = Int(slot)
        guard index < slotCapacity, slots[index].owner != nil else { return false }
        lastSequence &+= 1
        slots[index].sequence = lastSequence
        // An equal date does not count as later: the entry would keep its old place among equal dates.
        let isLater = date > slots[index].date
        slots[index].date = date
        if slots[index].isFiled {
            if !isLater { refile(slot) }
        } else if date != .max {
            insert(slot)
        }
        return true
    }

    /// Files a timer that `popDue` has returned, unless it has been filed again.
    mutating func fileIfPopped(_ slot: UInt32, date: Int64) {
        if Int(slot) < slotCapacity && !slots[Int(slot)].isFiled { reschedule(slot, date: date) }
    }

    /// Unfiles a timer until `reschedule`.
    mutating func setAside(_ slot: UInt32) {
        if Int(slot) < slotCapacity && slots[Int(slot)].isFiled { unfile(slot) }
    }

    /// Removes a timer.
    mutating func remove(_ slot: UInt32) {
        let index = Int(slot)
        guard index < slotCapacity, slots[index].owner != nil else { return }
        if slots[index].isFiled { unfile(slot) }
        slots[index].owner = nil
    }

    /// Unfiles the first timer, in the order of dates and then of insertion, whose date is not after `now`, and returns its owner; nil if
    /// none is due. `reschedule` files the timer again.
    mutating func popDue(_ now: Int64) -> (slot: UInt32, owner: UnsafeRawPointer)? {
        settle(upTo: now)
        let first: DeadlineHeap.Entry
        switch (strict.top, soft.top) {
        case (nil, nil): return nil
        case (let top?, nil), (nil, let top?): first = top
        case (let one?, let other?): first = other.precedes(one) ? other : one
        }
        if first.deadline > now { return nil }
        unfile(first.slot)
        return (first.slot, slots[Int(first.slot)].owner!)  // filed slots have an owner
    }

    /// Whether a timer is due.
    mutating func hasDue(_ now: Int64) -> Bool {
        guard !isEmpty, earliestEntry <= now else { return false }
        settle(upTo: now)
        return earliestEntry <= now
    }

    /// Until when the thread may sleep; `Int64.max` if no timer has a date.
    mutating func nextWake() -> Int64 {
        if isEmpty { return .max }
        settle(upTo: .max)
        return min(strict.top?.deadline ?? .max, hard.top?.deadline ?? .max)
    }

    /// Never later than the earliest date.
    private var earliestEntry: Int64 { min(strict.top?.deadline ?? .max, soft.top?.deadline ?? .max) }

    /// Refiles top entries whose dates have moved later, until each top entry that is not after `limit` has its timer's date.
    private mutating func settle(upTo limit: Int64) {
        // Ends: each turn refiles an entry under its date.
        while let top = strict.top, top.deadline <= limit, slots[Int(top.slot)].date != top.deadline {
            refile(top.slot)
        }
        while let top = soft.top, top.deadline <= limit, slots[Int(top.slot)].date != top.deadline {  // ends: likewise
            refile(top.slot)
        }
        while let top = hard.top, top.deadline != hardDeadline(top.slot) {  // ends: likewise
            refile(top.slot)
        }
    }

    private func hardDeadline(_ slot: UInt32) -> Int64 { slots[Int(slot)].date.addingSaturated(slots[Int(slot)].tolerance) }

    private mutating func insert(_ slot: UInt32) {
        let entry = slots[Int(slot)]
        slots[Int(slot)].isFiled = true
        if entry.tolerance == 0 {
            strict.insert(slot, deadline: entry.date, sequence: entry.sequence)
        } else {
            soft.insert(slot, deadline: entry.date, sequence: entry.sequence)
            hard.insert(slot, deadline: hardDeadline(slot), sequence: entry.sequence)
        }
    }

    private mutating func refile(_ slot: UInt32) {
        let entry = slots[Int(slot)]
        if entry.date == .max {
            unfile(slot)
        } else if entry.tolerance == 0 {
            strict.move(slot, deadline: entry.date, sequence: entry.sequence)
        } else {
            soft.move(slot, deadline: entry.date, sequence: entry.sequence)
            hard.move(slot, deadline: hardDeadline(slot), sequence: entry.sequence)
        }
    }

    private mutating func unfile(_ slot: UInt32) {
        slots[Int(slot)].isFiled = false
        if slots[Int(slot)].tolerance == 0 {
            strict.remove(slot)
        } else {
            soft.remove(slot)
            hard.remove(slot)
        }
    }

    private mutating func reserve(_ slot: UInt32) {
        if Int(slot) < slotCapacity { return }
        let larger = max(8, slotCapacity * 2, Int(slot) + 1)
        let storage = UnsafeMutablePointer<Slot>.allocate(capacity: larger)
        storage.moveInitialize(from: slots, count: slotCapacity)
        (storage + slotCapacity).initialize(repeating: Slot(), count: larger - slotCapacity)
        slots.deallocate()
        slots = storage
        slotCapacity = larger
    }
}
