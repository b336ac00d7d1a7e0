// How tests wait. Every wait has a bound of its own, reports what it waited for and where, and leaves the processor to other threads.
//
// A bound does not make a correct test faster. It turns a lost wake-up into a failed test instead of a suite that never ends.

public import EventLoop
public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// The bound of every wait for another thread, task or process, and of every run that one of those ends. A test fails if its wait or run
/// reaches this bound.
///
/// The bound is longer than the whole suite takes under a sanitizer on a busy machine, because a test that awaits shares the two threads of
/// the pool with all other tests.
public let patience: Duration = .seconds(1_200)

/// The bound of a wait for a thread whose own waits have the bound `patience`. Those waits fail first, and their errors say more.
public let patienceForThreads: Duration = patience + .seconds(300)

extension Trait where Self == TimeLimitTrait {
    /// For suites with tests that await, because an `await` has no bound of its own. If a test takes longer than this limit, Swift Testing
    /// records an issue with the test's name and cancels its task, which ends the library's sequences, sleeps and requests. The limit is
    /// longer than the bounds of other waits, whose errors say more.
    public static var bounded: Self { .timeLimit(.minutes(30)) }
}

/// Thrown by a wait that has reached its bound.
public struct WaitedTooLong: Error, CustomStringConvertible {
    public let description: String

    public init(for what: String, bound: Duration = patience, _ location: SourceLocation) {
        description = "waited \(bound) for this: \(what) (\(location.fileID):\(location.line))"
    }
}

/// Blocks the calling thread until `condition` holds; throws `WaitedTooLong` if it does not hold in time.
public func waitUntil(
    _ what: String = "the condition in the line", within bound: Duration = patience, _ location: SourceLocation = #_sourceLocation,
    _ condition: () throws -> Bool
) throws {
    let deadline = ContinuousClock.now + bound
    var pauses = Pauses()
    while try !condition() {  // ends: with the condition, or at the deadline
        guard ContinuousClock.now < deadline else { throw WaitedTooLong(for: what, bound: bound, location) }
        pauses.block()
    }
}

/// Suspends the calling task until `condition` holds; throws `WaitedTooLong` if it does not hold in time, or `CancellationError`.
public func suspendUntil(
    _ what: String, within bound: Duration = patience, isolation: isolated (any Actor)? = #isolation,
    _ location: SourceLocation = #_sourceLocation, _ condition: () async throws -> Bool
) async throws {
    let deadline = ContinuousClock.now + bound
    var pauses = Pauses()
    while try await !condition() {  // ends: with the condition, or at the deadline
        guard ContinuousClock.now < deadline else { throw WaitedTooLong(for: what, bound: bound, location) }
        try await pauses.suspend()
    }
}

/// What `listen` returns as soon as its address is free. A process that another test starts has copies of a listener that is closed here, until
/// it executes its program or ends, and the address is in use for so long.
public func whenFree<R>(_ location: SourceLocation = #_sourceLocation, _ listen: () throws -> R) throws -> R {
    var result: R?
    try waitUntil("the address is free", location) {
        result = try unlessInUse(listen)
        return result != nil
    }
    return result!  // the wait above ends with one
}

/// The same for tests that await.
public func whenFree<R>(
    isolation: isolated (any Actor)? = #isolation, _ location: SourceLocation = #_sourceLocation, _ listen: () throws -> R
) async throws -> R {
    var result: R?
    try await suspendUntil("the address is free", location) {
        result = try unlessInUse(listen)
        return result != nil
    }
    return result!  // the wait above ends with one
}

private func unlessInUse<R>(_ listen: () throws -> R) throws -> R? {
    do { return try listen() } catch RunLoop.SourceError.system(_, EADDRINUSE) { return nil }
}

/// Suspends the calling task until it is cancelled.
public func suspendUntilCancelled() async {
    let (stream, continuation) = AsyncStream<Void>.makeStream()
    await withTaskCancellationHandler {
        for await _ in stream {}  // ends: nothing is sent, and the cancellation finishes the stream
    } onCancel: {
        continuation.finish()
    }
}

/// Returns when `loop` sleeps. From then on, only an action of the caller can wake the loop.
public func waitUntilAsleep(_ loop: RunLoop, _ location: SourceLocation = #_sourceLocation) throws {
    try waitUntil("the loop sleeps", location) { loop.isWaiting }
}

/// Lets other threads run. Call it a fixed number of times; to wait for a condition, use `waitUntil`.
public func breathe() { sched_yield() }

/// The pauses between two checks of a condition without notification. The first few pauses only let other threads run, because most
/// conditions hold within microseconds. Later pauses are sleeps that double from 20 µs to 2.5 ms.
struct Pauses {
    private var count = 0

    /// Nil means: do not sleep this time.
    private mutating func next(yields: Int) -> Duration? {
        count += 1
        if count <= yields { return nil }
        return .microseconds(20 << min((count - yields) / 8, 7))
    }

    mutating func block() {
        guard let pause = next(yields: 64) else {
            sched_yield()
            return
        }
        var time = timespec(tv_sec: 0, tv_nsec: Int(pause / .nanoseconds(1)))
        nanosleep(&time, nil)
    }

    mutating func suspend() async throws {
        if let pause = next(yields: 16) { try await Task.sleep(for: pause) } else { await Task.yield() }
    }
}

/// Blocks until `descriptor` is readable or its other end is closed; throws `WaitedTooLong` if neither happens in time.
public func waitUntilReadable(
    _ descriptor: Int32, _ what: String, within bound: Duration = patience, _ location: SourceLocation = #_sourceLocation
) throws {
    try waitUntilReady(descriptor, Int16(POLLIN), what, within: bound, location)
}

/// Blocks until `descriptor` is writable; throws `WaitedTooLong` if this does not happen in time.
public func waitUntilWritable(
    _ descriptor: Int32, _ what: String, within bound: Duration = patience, _ location: SourceLocation = #_sourceLocation
) throws {
    try waitUntilReady(descriptor, Int16(POLLOUT), what, within: bound, location)
}

/// Blocks until the connection of `descriptor` is reset or closed on both sides; throws `WaitedTooLong` if this does not happen in time. Not even the
/// loopback interface delivers at once on a busy machine.
public func waitUntilHungUp(
    _ descriptor: Int32, _ what: String, within bound: Duration = patience, _ location: SourceLocation = #_sourceLocation
) throws {
    try waitUntilReady(descriptor, 0, what, within: bound, location)
}

private func waitUntilReady(
    _ descriptor: Int32, _ events: Int16, _ what: String, within bound: Duration, _ location: SourceLocation
) throws {
    let deadline = ContinuousClock.now + bound
    while true {  // ends: at the deadline
        let left = deadline - .now
        guard left > .zero else { throw WaitedTooLong(for: what, bound: bound, location) }
        var entry = pollfd(fd: descriptor, events: events, revents: 0)
        let count = poll(&entry, 1, Int32(clamping: Int64(left / .milliseconds(1)) + 1))
        if count > 0 { return }
        precondition(count == 0 || errno == EINTR, "poll: errno \(errno)")
    }
}

/// Reads until the other end is closed, and returns the data. The bound applies to each piece separately.
public func readToEnd(_ descriptor: Int32, _ what: String, _ location: SourceLocation = #_sourceLocation) throws -> String {
    var bytes: [UInt8] = []
    while let piece = try readPiece(descriptor, what, location) { bytes += piece }  // ends: the other end is closed, or by throwing
    return String(decoding: bytes, as: UTF8.self)
}

/// Returns the next bytes, or nil if the other end is closed.
public func readPiece(_ descriptor: Int32, _ what: String, _ location: SourceLocation = #_sourceLocation) throws -> [UInt8]? {
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {  // ends: with bytes, the end, or by throwing
        try waitUntilReadable(descriptor, what, location)
        let count = read(descriptor, &buffer, buffer.count)
        if count > 0 { return Array(buffer[..<count]) }
        if count == 0 { return nil }
        guard errno == EINTR || errno == EAGAIN else { return nil }
    }
}
