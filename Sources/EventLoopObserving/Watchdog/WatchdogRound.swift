// What the watchdogs' thread knows of the loops that it watches, and when it looks at them next. That thread's own; no lock.

internal import CStacks
internal import EventLoop
import Synchronization

struct WatchdogRound {
    private(set) var changes: UInt64 = 0
    private var loops: [WatchedLoop] = []
    /// In nanoseconds of the monotonic clock; zero for at once, `Int64.max` while all loops sleep.
    private(set) var nextLook = Int64.max
    /// A loop works: the thread looks again by itself.
    private(set) var mustLookAgain = false
    /// Loops that have ended.
    private(set) var ended: [UInt64] = []

    /// A callout that takes too long.
    struct Found {
        let entry: WatchdogThread.Entry
        let loop: RunLoop
        let serial: UInt64
        let item: CalloutItem
        let duration: Duration
        let processorTime: Duration
    }

    /// Those that wait for their reports, the earliest first.
    private(set) var stalls: [Found] = []
    /// As many wait at most, and those that one look adds: readers of the reports may be slower than the loops stall.
    static var mostStalls: Int { 64 }

    var isEmpty: Bool { loops.isEmpty }

    private var period: Int64 {
        let shortest = loops.lazy.flatMap(\.entries).map { $0.entry.watch.threshold.saturatedNanoseconds }.min() ?? .max
        return shortest / 2
    }

    private static var now: Int64 { RunLoop.Instant.now.nanoseconds }

    /// The watched loops have changed. Looks at all of them at once.
    mutating func take(_ entries: [WatchdogThread.Entry], _ changes: UInt64) {
        self.changes = changes
        let old = Dictionary(uniqueKeysWithValues: loops.map { ($0.id, $0) })
        var fresh: [UInt64: WatchedLoop] = [:]
        for entry in entries {
            fresh[entry.loopID, default: old[entry.loopID]?.withoutEntries ?? WatchedLoop(id: entry.loopID)].add(entry, old[entry.loopID])
        }
        loops = Array(fresh.values)
        nextLook = loops.isEmpty ? .max : 0
    }

    /// Looks at every loop once, and adds the callouts to report to `stalls`. Does nothing while too many of them wait.
    mutating func look() {
        ended = []
        if stalls.count >= Self.mostStalls { return }
        var isAnyAwake = false
        var earliest = Int64.max
        loops.removeAll { watched in
            if LoopRegistry.loop(watched.id) != nil { return false }
            ended.append(watched.id)
            return true
        }
        for index in loops.indices {
            guard let loop = LoopRegistry.loop(loops[index].id) else { continue }
            if loops[index].look(loop, &stalls, &earliest) { isAnyAwake = true }
        }
        mustLookAgain = isAnyAwake
        nextLook = isAnyAwake ? min(Self.now.addingSaturated(period), earliest) : .max
    }

    /// Takes the callout whose turn it is to be reported.
    mutating func nextStall() -> Found? { stalls.isEmpty ? nil : stalls.removeFirst() }

    /// Has every loop ring when it begins to work. Returns false if one does already.
    mutating func requestAlarms() -> Bool {
        for watched in loops { LoopRegistry.loop(watched.id)?.requestAlarm() }
        // In this order: a loop that has begun to work before it could see the request is seen here.
        let isAsleep = loops.allSatisfy { watched in
            guard let loop = LoopRegistry.loop(watched.id), case .asleep = loop.calloutState() else { return false }
            return true
        }
        if !isAsleep { didWake() }
        return isAsleep
    }

    /// A loop has just begun to work. No callout of it can take too long before a threshold has passed.
    mutating func didWake() { nextLook = loops.isEmpty ? .max : Self.now.addingSaturated(period) }

    /// Takes the backtrace, while the callout lasts.
    func describe(_ found: Found) -> RunLoop.Watchdog.Stall {
        let thread = found.loop.threadID
        var backtrace = thread == 0 ? [] : Backtrace.frames(of: thread)
        // Of something else, if the callout is over.
        if WatchedLoop.serial(of: found.loop, found.loop.calloutState()) != found.serial { backtrace = [] }
        return RunLoop.Watchdog.Stall(
            loop: found.loop, loopName: found.loop.givenName, kind: found.item.kind, label: found.item.label,
            createdAt: found.item.site?.description, duration: found.duration, processorTime: found.processorTime,
            backtrace: backtrace.map(\.line), summary: Backtrace.summary(backtrace))
    }
}

/// What is known of a watched loop.
private struct WatchedLoop {
    struct Judged {
        let entry: WatchdogThread.Entry
        /// The callout that was reported last.
        var reported: UInt64 = 0
    }

    /// The callout that was seen at the last look.
    private struct Sight {
        let serial: UInt64
        let firstTicks: UInt64
        /// The processor time that the thread had used at the first look at the callout, and at the look before; negative if unknown.
        let used: Int64, usedBefore: Int64
    }

    let id: UInt64
    private(set) var entries: [Judged] = []
    private var sight: Sight?
    private var lastUsed: Int64 = -1

    init(id: UInt64) { self.id = id }

    var withoutEntries: WatchedLoop {
        var copy = self
        copy.entries = []
        return copy
    }

    mutating func add(_ entry: WatchdogThread.Entry, _ old: WatchedLoop?) {
        entries.append(old?.entries.first { $0.entry.number == entry.number } ?? Judged(entry: entry))
    }

    /// The number of the callout in progress; nil if there is none.
    static func serial(of loop: RunLoop, _ state: RunLoop.CalloutState) -> UInt64? {
        switch state {
        case .asleep: nil
        case .working: loop.isInUnpublishedCallout ? 1 << 63 | loop.passesAndWaits.passes : nil
        case .inCallout(_, _, let serial): serial
        }
    }

    /// Returns false if the loop sleeps. `earliest` is when a callout in progress reaches its threshold.
    mutating func look(_ loop: RunLoop, _ found: inout [WatchdogRound.Found], _ earliest: inout Int64) -> Bool {
        let state = loop.calloutState()
        let now = TickClock.ticks
        let used = cstacks_processor_time(loop.threadID)
        defer { lastUsed = used }
        guard let serial = Self.serial(of: loop, state) else {
            sight = nil
            if case .asleep = state { return false }
            return true
        }
        if sight?.serial != serial { sight = Sight(serial: serial, firstTicks: now, used: used, usedBefore: lastUsed) }
        if case .inCallout(let item, let resumedTicks, _) = state {
            judge(loop, item, start: resumedTicks, now, used, &found, &earliest)
        } else {
            judge(loop, CalloutItem(unpublishedOf: loop), start: sight?.firstTicks ?? now, now, used, &found, &earliest)
        }
        return true
    }

    private mutating func judge(
        _ loop: RunLoop, _ item: @autoclosure () -> CalloutItem, start: UInt64, _ now: UInt64, _ used: Int64,
        _ found: inout [WatchdogRound.Found], _ earliest: inout Int64
    ) {
        guard let sight else { return }
        for index in entries.indices where entries[index].reported != sight.serial {
            let entry = entries[index].entry
            // Not from the future: after a suspension the processor's clock may begin again.
            let since = entry.since > now ? start : max(start, entry.since)
            let left = entry.watch.threshold - TickClock.duration(ofTicks: TickClock.passed(since, now))
            if left > .zero {
                // Not at once: the two clocks may disagree a little.
                let wait = max(left, .microseconds(50)).saturatedNanoseconds
                earliest = min(earliest, RunLoop.Instant.now.nanoseconds.addingSaturated(wait))
                continue
            }
            entries[index].reported = sight.serial
            let duration = TickClock.duration(ofTicks: TickClock.passed(start, now))
            found.append(
                WatchdogRound.Found(
                    entry: entry, loop: loop, serial: sight.serial, item: item(), duration: duration,
                    processorTime: min(processorTime(sight, since: start, used), duration)))
        }
    }

    /// What the thread has used since the first look, and before that what it can have used since the beginning.
    private func processorTime(_ sight: Sight, since start: UInt64, _ used: Int64) -> Duration {
        if used < 0 || sight.used < 0 { return .zero }
        let unseen = TickClock.duration(ofTicks: TickClock.passed(start, sight.firstTicks)).saturatedNanoseconds
        let before = sight.usedBefore < 0 ? unseen : min(unseen, sight.used - sight.usedBefore)
        return .nanoseconds((used - sight.used).addingSaturated(before))
    }
}
