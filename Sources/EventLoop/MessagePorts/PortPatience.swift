// When a client that keeps others waiting has had time enough.

/// A port's own time, which stands still while the port does not look at its clients: a handler that takes long, or a mode that does not run,
/// costs no client its connection.
struct PortPatience {
    /// How often a port looks while somebody waits for room.
    static let tick = Duration.milliseconds(500)
    /// A connection that keeps others waiting has to bring, or to take, this much in `limit`, or the whole of its frame.
    static let step = 1 << 19
    static let limit = Duration.seconds(5)

    private var elapsed = Duration.zero
    private var lastLook: RunLoop.Instant?
    private var lastRound = Duration.zero

    /// What a connection had when its time began.
    struct Mark {
        var began = Duration.zero
        var held = 0
        var unsent = 0
    }

    /// When to look again; nil while nobody waits.
    var nextLook: RunLoop.Instant? { lastLook?.advanced(by: Self.tick) }

    /// Nobody waits.
    mutating func rest() { lastLook = nil }

    /// Somebody waits, and the port looks. True when it is time for a round.
    mutating func look(_ now: RunLoop.Instant) -> Bool {
        if let lastLook { elapsed += min(max(.zero, lastLook.duration(to: now)), Self.tick * 3 / 2) }
        lastLook = now
        if elapsed - lastRound < Self.tick { return false }
        lastRound = elapsed
        return true
    }

    func mark(held: Int, unsent: Int) -> Mark { Mark(began: elapsed, held: held, unsent: unsent) }

    /// Whether it has brought or taken enough since then for its time to begin again.
    func isProgress(_ mark: Mark, held: Int, unsent: Int) -> Bool {
        // What waits to be sent is looked at first: while there is any, nothing is read.
        if unsent > 0 || mark.unsent > 0 { return unsent == 0 || mark.unsent == 0 || unsent <= mark.unsent - Self.step }
        return held < mark.held || held >= mark.held + Self.step
    }

    func isOver(_ mark: Mark) -> Bool { elapsed - mark.began >= Self.limit }
}
