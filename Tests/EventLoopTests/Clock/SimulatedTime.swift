// What the golden traces of timers, descriptors and threads share: a loop on simulated time, and the moment
// at which another thread may be sure that a loop sleeps.

import EventLoop
import EventLoopTestSupport
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Runs `body` on a fresh thread whose loop goes by a clock that starts at 0 and jumps to the next deadline
/// whenever the loop has nothing ready.
@discardableResult
func onSimulatedTime<R: Sendable>(
    _ body: @escaping @Sendable (RunLoop, RunLoop.ManualClock) throws -> R
) throws -> R {
    try onFreshThread { loop in
        let clock = RunLoop.ManualClock(autoAdvance: true)
        loop.use(clock)
        return try body(loop, clock)
    }
}

extension RunLoop.Instant {
    static func ms(_ count: Int64) -> Self { Self(nanoseconds: count * 1_000_000) }
}

extension RunLoop.ManualClock {
    /// The time in whole milliseconds, for traces: `tick@10`.
    var ms: Int64 { now.nanoseconds / 1_000_000 }
}

/// A wait for another thread's move took longer than any machine needs.
struct OtherThreadDidNotMove: Error {}

/// Limit of every wait for another thread, and of every run that such a thread ends: long enough never to matter,
/// short enough that a lost wake-up is a failed test and not a hung one.
let patience: Duration = .seconds(30)

/// Returns when `loop` is blocked in its wait: from here on only what the caller does can wake it.
func waitUntilAsleep(_ loop: RunLoop) throws {
    try waitUntil { loop.isWaiting }
}

func waitUntil(_ condition: () -> Bool) throws {
    let start = ContinuousClock.now
    while !condition() {  // ends: with the condition, or by throwing
        guard start.duration(to: .now) < patience else { throw OtherThreadDidNotMove() }
        sched_yield()
    }
}

/// Which thread this is, as a value to compare with another: `pthread_t` is opaque, and not Sendable everywhere.
func currentThreadID() -> UInt {
    #if canImport(Glibc)
    UInt(pthread_self())
    #else
    UInt(bitPattern: pthread_self())
    #endif
}

/// A value that handlers change, on whatever thread.
final class Box<Value: Sendable>: Sendable {
    private let storage: Mutex<Value>
    init(_ value: Value) { storage = Mutex(value) }

    var value: Value {
        get { storage.withLock { $0 } }
        set { storage.withLock { $0 = newValue } }
    }

    @discardableResult
    func change<R: Sendable>(_ body: @Sendable (inout Value) -> R) -> R {
        storage.withLock { body(&$0) }
    }
}

extension Box where Value == Int {
    /// Counts up, and returns the new count.
    @discardableResult
    func increment() -> Int {
        change { count in
            count += 1
            return count
        }
    }
}

/// Tells when it is let go of, and on which thread.
final class Canary: Sendable {
    private let onRelease: @Sendable () -> Void
    init(_ onRelease: @escaping @Sendable () -> Void) { self.onRelease = onRelease }
    deinit { onRelease() }
}
