// The timers of one mode, as numbers: no clock, no thread, no callout. It answers what is due and how long one may sleep.

/// A queue of dates with tolerances. The caller numbers its timers with slots and keeps one opaque `owner` for each. Equal dates come out in
/// the order in which they were set.
///
/// A date that moves later leaves its entry where it is: the entry comes up at the old date and is filed anew then, so that an
/// idle timeout that is pushed back at every request costs no heap work. An entry is therefore never later than its date.
///
/// Timers with a tolerance stand in two heaps: by date, for what is due once somebody is awake, and by date plus tolerance, for
/// how long one may sleep. That wakes the thread the fewest times possible, never early and never later than a tolerance.
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

    /// Whether no timer is filed; one that is firing is not. A timer whose date was taken away may count as filed until its entry comes up.
    var isEmpty: Bool { strict.isEmpty && soft.isEmpty }

    /// Files a timer. A date of `Int64.max` is none: the timer waits for `reschedule`.
    mutating func file(_ slot: UInt32, date: Int64, tolerance: Int64, owner: UnsafeRawPointer) {
        reserve(slot)
        let index = Int(slot)
        if slots[index].isFiled { unfile(slot) }
        lastSequence &+= 1
        slots[index] = Slot(date: date, tolerance: tolerance, owner: owner, sequence: lastSequence)
        if date != .max { insert(slot) }
    }

    /// Gives a timer another date. O(1) when it is later, O(log n) when earlier. False if the slot has no timer.
    @discardableResult
    mutating func reschedule(_ slot: UInt32, date: Int64) -> Bool {
        let index = Int(slot)
        guard index < slotCapacity, slots[index].owner != nil else { return false }
        lastSequence &+= 1
        slots[index].sequence = lastSequence
        // The same date is not later: the entry would keep its old place among equal dates, unless something had it filed anew before.
        let isLater = date > slots[index].date
        slots[index].date = date
        if slots[index].isFiled {
            if !isLater { refile(slot) }
        } else if date != .max {
            insert(slot)
        }
        return true
    }

    /// Files a timer that `popDue` has handed out, unless it is filed again.
    mutating func fileIfPopped(_ slot: UInt32, date: Int64) {
        if Int(slot) < slotCapacity && !slots[Int(slot)].isFiled { reschedule(slot, date: date) }
    }

    /// Unfiles a timer until `reschedule`.
    mutating func setAside(_ slot: UInt32) {
        if Int(slot) < slotCapacity && slots[Int(slot)].isFiled { unfile(slot) }
    }

    /// Takes a timer out for good.
    mutating func remove(_ slot: UInt32) {
        let index = Int(slot)
        guard index < slotCapacity, slots[index].owner != nil else { return }
        if slots[index].isFiled { unfile(slot) }
        slots[index].owner = nil
    }

    /// The owner of the first timer in (date, insertion) order whose date is not after `now`, or nil. The timer is no longer
    /// filed then; `reschedule` files it again.
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

    /// Whether a date has been reached.
    mutating func hasDue(_ now: Int64) -> Bool {
        guard !isEmpty, earliestEntry <= now else { return false }
        settle(upTo: now)
        return earliestEntry <= now
    }

    /// The latest instant to sleep to; `Int64.max` when no timer has a date.
    mutating func nextWake() -> Int64 {
        if isEmpty { return .max }
        settle(upTo: .max)
        return min(strict.top?.deadline ?? .max, hard.top?.deadline ?? .max)
    }

    /// Never later than the earliest date.
    private var earliestEntry: Int64 { min(strict.top?.deadline ?? .max, soft.top?.deadline ?? .max) }

    /// Files the tops anew whose dates have moved later, until each top that is not after `limit` tells the truth.
    private mutating func settle(upTo limit: Int64) {
        // Ends: an entry is mended at each turn.
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
