// What the golden traces of timers, descriptors and threads share: a loop on simulated time, and which thread is which.

public import EventLoop
public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Runs `body` on a fresh thread whose loop goes by a clock that starts at 0 and jumps to the next deadline
/// whenever the loop has nothing ready.
@discardableResult
public func onSimulatedTime<R: Sendable>(
    _ location: SourceLocation = #_sourceLocation, _ body: @escaping @Sendable (RunLoop, RunLoop.ManualClock) throws -> R
) throws -> R {
    try onFreshThread(location) { loop in
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
