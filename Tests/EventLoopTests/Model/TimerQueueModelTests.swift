// Rules proved here, against a searched list:
// - Timers come out by date, and never before their dates. Timers with equal dates come out in the order in which the dates were set.
// - The earliest timer is the one that comes out first.
// - The wake-up is the minimum of date plus tolerance. A sum that overflows means never.
// - The queue refiles entries late. This is not visible from outside: neither in the order nor in the wake-up.
// - A timer without a date is not filed. Setting the date of an absent timer does nothing.

import EventLoopTestSupport
import Testing

@testable import EventLoop

/// The queue, a model list of timers, and every operation on both.
private struct QueuePair: ~Copyable {
    private struct Timer {
        var date: Int64
        var tolerance: Int64
        var owner: UnsafeRawPointer
        /// When the date was set.
        var order: Int
        /// False from the moment the timer comes out until it gets another date.
        var isFiled: Bool
    }

    private var queue = TimerQueue()
    private var timers: [UInt32: Timer] = [:]
    private var order = 0
    private var owners = 0

    mutating func file(_ slot: UInt32, date: Int64, tolerance: Int64) {
        owners += 1
        order += 1
        // Only compared, never dereferenced.
        let owner = UnsafeRawPointer(bitPattern: owners * 16)!
        queue.file(slot, date: date, tolerance: tolerance, owner: owner)
        timers[slot] = Timer(date: date, tolerance: tolerance, owner: owner, order: order, isFiled: date != .max)
    }

    mutating func reschedule(_ slot: UInt32, date: Int64) {
        order += 1
        queue.reschedule(slot, date: date)
        timers[slot]?.date = date
        timers[slot]?.order = order
        timers[slot]?.isFiled = date != .max
    }

    mutating func remove(_ slot: UInt32) {
        queue.remove(slot)
        timers[slot] = nil
    }

    mutating func popDue(_ now: Int64) throws {
        let first = timers.filter { $0.value.isFiled && $0.value.date <= now }
            .min { ($0.value.date, $0.value.order) < ($1.value.date, $1.value.order) }
        let popped = queue.popDue(now)
        try agree(popped?.slot, first?.key, "popDue(\(now))")
        try agree(popped?.owner, first?.value.owner, "the owner of popDue(\(now))")
        if let first { timers[first.key]!.isFiled = false }
    }

    mutating func askHasDue(_ now: Int64) throws {
        try agree(queue.hasDue(now), timers.values.contains { $0.isFiled && $0.date <= now }, "hasDue(\(now))")
    }

    mutating func askNextWake() throws {
        let wakes = timers.values.filter(\.isFiled).map { timer -> Int64 in
            let (sum, overflow) = timer.date.addingReportingOverflow(timer.tolerance)
            return overflow ? .max : sum
        }
        try agree(queue.nextWake(), wakes.min() ?? .max, "nextWake")
        // Before this call, the queue may still have an entry of a timer whose date was removed.
        try agree(queue.isEmpty, wakes.isEmpty, "isEmpty after nextWake")
    }

    mutating func askEarliest() throws {
        let first = timers.values.filter(\.isFiled).min { ($0.date, $0.order) < ($1.date, $1.order) }
        let earliest = queue.earliest()
        try agree(earliest?.date, first?.date, "the earliest date")
        try agree(earliest?.owner, first?.owner, "whose date is the earliest")
    }

    /// A queue with a filed timer never reports that it is empty.
    func askIsEmpty() throws {
        if timers.values.contains(where: \.isFiled) { try agree(queue.isEmpty, false, "isEmpty") }
    }

    mutating func drain() throws {
        for _ in 0...timers.count { try popDue(.max) }
        try askNextWake()
    }
}

private struct QueuePlay: ModelPlay, ~Copyable {
    private static let dates: [Int64] = [.min, -3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, .max - 2, .max - 1, .max]
    private static let tolerances: [Int64] = [0, 0, 0, 1, 2, 5, 20, .max - 1, .max]

    private var pair = QueuePair()
    private let slots: Int

    init(_ random: inout SplitMix64) { slots = random.pick([1, 2, 3, 8, 9, 25]) }

    mutating func step(_ random: inout SplitMix64) throws {
        // One slot more than there are timers, and from time to time a distant slot that was never filed.
        let slot = random.below(200) == 0 ? 5_000 : UInt32(random.below(slots + 1))
        let date = random.pick(Self.dates)
        switch random.below(21) {
        case 20: try pair.askEarliest()
        case 0..<4: pair.file(slot, date: date, tolerance: random.pick(Self.tolerances))
        case 4..<12: pair.reschedule(slot, date: date)
        case 12: pair.remove(slot)
        case 13..<16: try pair.popDue(date)
        case 16..<18: try pair.askHasDue(date)
        default: try pair.askNextWake()
        }
        try pair.askIsEmpty()
    }

    mutating func finish() throws { try pair.drain() }
}

/// Two timers with few dates, one strict and one with a tolerance.
private struct TwoTimers: EnumerablePlay, ~Copyable {
    static let operationCount = 11
    private var pair = QueuePair()

    /// In the first start both timers are strict, and share one heap.
    init(start: Int) {
        pair.file(0, date: 1, tolerance: 0)
        pair.file(1, date: 1, tolerance: start == 0 ? 0 : 2)
    }

    mutating func perform(_ operation: Int) throws {
        switch operation {
        case 0: pair.reschedule(0, date: 1)
        case 1: pair.reschedule(0, date: 2)
        case 2: pair.reschedule(0, date: .max)
        case 3: pair.reschedule(1, date: 1)
        case 4: pair.reschedule(1, date: 2)
        case 5: pair.file(0, date: 2, tolerance: 1)
        case 6: pair.remove(1)
        case 7: try pair.popDue(1)
        case 8: try pair.askNextWake()
        case 9: try pair.askEarliest()
        default: try pair.askHasDue(1)
        }
    }

    mutating func finish() throws { try pair.drain() }
}

@Suite struct TimerQueueModelTests {
    @Test func `random dates come out as from a searched list`() throws {
        try playRandomly(QueuePlay.self, seeds: 0..<100, steps: 800)
    }

    @Test func `two timers come out in order after every short sequence of operations`() throws {
        try playAllSequences(TwoTimers.self, length: 5, starts: 2)
    }

    /// Regression: the first timer's entry kept its position when its date was set again, so that it came out first unless the
    /// wake-up had been queried in between.
    @Test func `a timer whose own date is set again goes behind others with the same date`() throws {
        var queue = TimerQueue()
        let (first, second) = (UnsafeRawPointer(bitPattern: 16)!, UnsafeRawPointer(bitPattern: 32)!)
        queue.file(0, date: 5, tolerance: 0, owner: first)
        queue.file(1, date: 5, tolerance: 0, owner: second)
        queue.reschedule(0, date: 5)
        let popped = [queue.popDue(5)?.slot, queue.popDue(5)?.slot]
        #expect(popped == [1, 0])
    }
}
