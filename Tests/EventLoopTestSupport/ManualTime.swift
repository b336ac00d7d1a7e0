// A loop in manual time.

public import EventLoop
public import Testing

/// Runs `body` on a fresh thread. The loop's clock starts at 0 and jumps to the loop's next deadline whenever nothing is ready.
@discardableResult
public func inManualTime<R: Sendable>(
    _ location: SourceLocation = #_sourceLocation,
    _ body: @escaping @Sendable (_ loop: RunLoop, _ clock: RunLoop.ManualClock, _ trace: Trace) throws -> R
) throws -> R {
    try onFreshThread(location) { loop in
        let clock = RunLoop.ManualClock(autoAdvance: true)
        loop.use(clock)
        return try body(loop, clock, Trace())
    }
}

extension RunLoop.Instant {
    public static func ms(_ count: Int64) -> Self { Self(nanoseconds: count * 1_000_000) }
}

extension RunLoop.ManualClock {
    /// The time in whole milliseconds, for traces: `tick@10`.
    public var ms: Int64 { now.nanoseconds / 1_000_000 }
}
