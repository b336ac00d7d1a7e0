// When a client that keeps others waiting has made too little progress for too long.

internal import EventLoop

/// Measures stalls in the port's own time. That time advances only while somebody waits and the port checks: a slow handler, or a mode that
/// does not run, costs no client its connection.
struct StallDetector {
    /// How often a port checks while somebody waits.
    static let interval = Duration.milliseconds(500)
    /// A connection that keeps others waiting must transfer this many bytes within `limit`, or the rest of its frame.
    static let leastProgress = 1 << 19
    static let limit = Duration.seconds(5)

    private var elapsed = Duration.zero
    /// Nil while the time does not advance.
    private var lastAdvance: RunLoop.Instant?
    private var lastCheck = Duration.zero

    /// The state of a connection when its stall time was restarted.
    struct Mark {
        var time = Duration.zero
        var held = 0
        var unsent = 0
    }

    /// When to advance again; nil while nobody waits.
    var nextCheck: RunLoop.Instant? { lastAdvance?.advanced(by: Self.interval) }

    /// Nobody waits any more.
    mutating func pause() { lastAdvance = nil }

    /// Somebody waits. Returns true if an interval has passed since the last check.
    mutating func advance(to now: RunLoop.Instant) -> Bool {
        if let lastAdvance { elapsed += min(max(.zero, lastAdvance.duration(to: now)), Self.interval * 3 / 2) }
        lastAdvance = now
        if elapsed - lastCheck < Self.interval { return false }
        lastCheck = elapsed
        return true
    }

    func mark(held: Int, unsent: Int) -> Mark { Mark(time: elapsed, held: held, unsent: unsent) }

    /// Whether a connection has transferred enough to restart its stall time.
    func isProgress(since mark: Mark, held: Int, unsent: Int) -> Bool {
        // Replies first: while some are unsent, nothing is read.
        if unsent > 0 || mark.unsent > 0 { return unsent == 0 || mark.unsent == 0 || unsent <= mark.unsent - Self.leastProgress }
        return held < mark.held || held >= mark.held + Self.leastProgress
    }

    func isOver(_ mark: Mark) -> Bool { elapsed - mark.time >= Self.limit }
}
