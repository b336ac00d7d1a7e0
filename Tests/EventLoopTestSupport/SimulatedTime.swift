// What the golden traces of timers, descriptors and threads share: a loop on simulated time, and the moment
// at which another thread may be sure that a loop sleeps.

public import EventLoop

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Runs `body` on a fresh thread whose loop goes by a clock that starts at 0 and jumps to the next deadline
/// whenever the loop has nothing ready.
@discardableResult
public func onSimulatedTime<R: Sendable>(
    _ body: @escaping @Sendable (RunLoop, RunLoop.ManualClock) throws -> R
) throws -> R {
    try onFreshThread { loop in
        let clock = RunLoop.ManualClock(autoAdvance: true)
        loop.use(clock)
        return try body(loop, clock)
    }
}

extension RunLoop.Instant {
    public static func ms(_ count: Int64) -> Self { Self(nanoseconds: count * 1_000_000) }
}

extension RunLoop.ManualClock {
    /// The time in whole milliseconds, for traces: `tick@10`.
    public var ms: Int64 { now.nanoseconds / 1_000_000 }
}

/// A wait for another thread's move took longer than any machine needs.
public struct OtherThreadDidNotMove: Error {}

/// Limit of every wait for another thread, and of every run that such a thread ends: short enough that a lost wake-up is a failed test and
/// not a hung one, and longer than the whole suite takes under a sanitizer, because a test that awaits stands in line with all others
/// for the two threads of the pool.
public let patience: Duration = .seconds(1_200)

/// Returns when `loop` is blocked in its wait: from here on only what the caller does can wake it.
public func waitUntilAsleep(_ loop: RunLoop) throws {
    try waitUntil { loop.isWaiting }
}

public func waitUntil(_ condition: () -> Bool) throws {
    let start = ContinuousClock.now
    while !condition() {  // ends: with the condition, or by throwing
        guard start.duration(to: .now) < patience else { throw OtherThreadDidNotMove() }
        sched_yield()
    }
}

/// Which thread this is, as a value to compare with another: `pthread_t` is opaque, and not Sendable everywhere.
public func currentThreadID() -> UInt {
    #if canImport(Glibc)
    UInt(pthread_self())
    #else
    UInt(bitPattern: pthread_self())
    #endif
}

/// Tells when it is let go of, and on which thread.
public final class Canary: Sendable {
    private let onRelease: @Sendable () -> Void
    public init(_ onRelease: @escaping @Sendable () -> Void) { self.onRelease = onRelease }
    deinit { onRelease() }
}
