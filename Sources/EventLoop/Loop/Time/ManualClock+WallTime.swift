// The wall time of loops.

/// A source that goes by the wall clock. While it is in a loop with a manual clock, that clock calls it.
protocol WallClockObserver: AnyObject, Sendable {
    /// The clock has moved, and was set by this many nanoseconds; zero if time has only passed. Any thread, outside the clock's lock.
    func wallClockMoved(settingItBy jump: Int64)
}

/// The wall time of a manual clock: what the clock is ahead by, and who goes by it.
struct ManualWallTime: Sendable {
    /// 2001-01-01T00:00:00Z.
    private static let start: Int64 = 978_307_200_000_000_000

    /// Added to the clock's time.
    private var offset: Int64
    private var observers: [(observer: any WallClockObserver, count: Int)] = []

    init(startingAt now: Int64) { offset = Self.start.subtractingSaturated(now) }

    func time(at now: Int64) -> Int64 { now.addingSaturated(offset) }

    /// The clock's time at which the wall time comes.
    func now(at time: Int64) -> Int64 { time.subtractingSaturated(offset) }

    /// Returns by how much it moved.
    mutating func set(_ time: Int64, at now: Int64) -> Int64 {
        let jump = time.subtractingSaturated(self.time(at: now))
        offset = time.subtractingSaturated(now)
        return jump
    }

    var all: [any WallClockObserver] { observers.filter { $0.count > 0 }.map(\.observer) }

    /// The observer was added to a mode of a loop, or (-1) removed from it. Returns an observer that is to be released outside the lock.
    mutating func count(_ observer: any WallClockObserver, _ difference: Int) -> (any WallClockObserver)? {
        if let index = observers.firstIndex(where: { $0.observer === observer }) {
            observers[index].count += difference
            return observers[index].count == 0 ? observers.remove(at: index).observer : nil
        }
        observers.append((observer, difference))
        return nil
    }
}

extension RunLoop {
    /// What the loop's wall clock says: the system's, or that of its `ManualClock`. Thread-safe.
    public var wallTime: WallTime { time.manualClock?.wallTime ?? .now }
}
