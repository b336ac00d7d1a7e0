// Whether loops make progress: the question that a service manager's watchdog asks.

internal import EventLoop

/// Loops, and whether each has made progress since the last sign of life.
///
/// A loop has made progress if it has begun a pass or a sleep since then, or if it was asleep then or is asleep now. A hosted loop is
/// asleep between two steps. So a loop that is stuck in a callout has made none, and a loop that sleeps for hours has: nothing has to
/// wake it.
struct ProgressCheck {
    /// What a loop has done so far.
    private struct Reading: Equatable {
        let passes: UInt64
        let waits: UInt64
        let isAsleep: Bool

        init(_ loop: RunLoop) {
            // The counters first: a loop that falls asleep in between is seen asleep, or its next reading has another count.
            (passes, waits) = loop.passesAndWaits
            isAsleep = loop.isWaiting
        }

        func isProgress(since earlier: Reading) -> Bool {
            isAsleep || earlier.isAsleep || passes != earlier.passes || waits != earlier.waits
        }
    }

    private struct Watched {
        let loop: RunLoop
        /// At the last sign of life.
        var then: Reading
        /// At the last look.
        var now: Reading
    }

    private var watched: [Watched] = []

    var isEmpty: Bool { watched.isEmpty }

    /// A loop that is there already keeps its reading.
    mutating func add(_ loop: RunLoop) {
        if watched.contains(where: { $0.loop === loop }) { return }
        let reading = Reading(loop)
        watched.append(Watched(loop: loop, then: reading, now: reading))
    }

    mutating func remove(_ loop: RunLoop) { watched.removeAll { $0.loop === loop } }

    /// Removes the loops that have ended, and returns them, because the last reference must not be released under a lock.
    mutating func removeEndedLoops() -> [RunLoop] {
        let ended = watched.map(\.loop).filter { !$0.isValid }
        // Not those that end from now on: they would be removed, and not returned.
        if !ended.isEmpty { watched.removeAll { one in ended.contains { $0 === one.loop } } }
        return ended
    }

    /// Looks at every loop. Returns true if all have made progress.
    mutating func look() -> Bool {
        for index in watched.indices { watched[index].now = Reading(watched[index].loop) }
        return watched.allSatisfy { $0.now.isProgress(since: $0.then) }
    }

    /// A sign of life was sent for the last look: the next one wants new progress.
    mutating func begin() {
        for index in watched.indices { watched[index].then = watched[index].now }
    }
}
