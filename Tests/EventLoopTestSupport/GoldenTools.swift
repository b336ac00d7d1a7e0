// What the golden-trace tests share: a loop in manual time, the callouts of a run as a list to go through,
// and a few ways for two threads to meet without sleeping.

public import EventLoop
import Synchronization
public import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Runs `body` on a fresh thread, in a time of its own that jumps to the loop's next deadline whenever nothing is ready.
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

// MARK: - Items with little to say

extension RunLoop {
    /// Adds a source that nobody signals, so that `mode` is not empty.
    @discardableResult
    public func addIdleSource(forMode mode: Mode = .default) -> CustomSource {
        let source = CustomSource {}
        add(source, forMode: mode)
        return source
    }

    /// Adds a custom source whose closure is handed the source itself.
    @discardableResult
    public func addSource(
        forMode mode: Mode = .default, order: Int = 0, signaled: Bool = false, perform: @escaping @Sendable (CustomSource) -> Void
    ) -> CustomSource {
        let itself = WeakReference<CustomSource>()
        // The loop holds the source for as long as it performs it.
        let source = CustomSource(order: order) { perform(itself.value!) }
        itself.value = source
        add(source, forMode: mode)
        if signaled { source.signal() }
        return source
    }

    /// Adds a one-shot timer.
    @discardableResult
    public func addTimer(forMode mode: Mode = .default, at date: Instant, handler: @escaping @Sendable (Timer) -> Void) -> Timer {
        let timer = Timer(fireAt: date, handler: handler)
        add(timer, forMode: mode)
        return timer
    }

    /// Adds a source of a pipe that has something to read; `handler` is called after it has been read.
    @discardableResult
    public func addReadyPipe(
        forMode mode: Mode = .default, handler: @escaping @Sendable (DescriptorSource) -> Void
    ) throws -> DescriptorSource {
        let pipe = Pipe()
        pipe.write()
        let source = try DescriptorSource(descriptor: pipe.readEnd, events: .read) { source, _ in
            pipe.readAll()
            handler(source)
        }
        add(source, forMode: mode)
        return source
    }

    /// Calls `body` at the first `activity` in `mode`, after a trace's own observer.
    @discardableResult
    public func atFirst(_ activity: Activity, forMode mode: Mode = .default, do body: @escaping @Sendable () -> Void) -> Observer {
        let observer = Observer(activities: activity, repeats: false, order: 1) { _, _ in body() }
        add(observer, forMode: mode)
        return observer
    }
}

/// Every place of a run from which a loop calls out, exit apart.
public enum Callout: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case entry, beforeTimers, beforeSources, block, source, perform, port, beforeWaiting, afterWaiting, timer

    public static let observers: [Callout] = [.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting]
    public var testDescription: String { rawValue }

    /// Has `body` called once at this place of the next run of `loop` in `mode`. A callout that no observer reports adds its name to `trace`.
    /// `leaving` takes the source or the timer out of the loop before `body`.
    public func arrange(
        _ loop: RunLoop, _ clock: RunLoop.ManualClock, _ trace: Trace, mode: RunLoop.Mode = .default, leaving: Bool = false,
        body: @escaping @Sendable () -> Void
    ) throws {
        let name = rawValue
        let once = Once()
        let act: @Sendable () -> Void = {
            trace.add(name)
            if once.isFirst() { body() }
        }
        switch self {
        case .entry: loop.atFirst(.entry, forMode: mode, do: body)
        case .beforeTimers: loop.atFirst(.beforeTimers, forMode: mode, do: body)
        case .beforeSources: loop.atFirst(.beforeSources, forMode: mode, do: body)
        case .beforeWaiting: loop.atFirst(.beforeWaiting, forMode: mode, do: body)
        case .afterWaiting:
            loop.atFirst(.beforeWaiting, forMode: mode) { loop.wakeUp() }
            loop.atFirst(.afterWaiting, forMode: mode, do: body)
        case .block: loop.performBlock(inModes: [mode], act)
        case .perform: loop.perform(inModes: [mode], act)
        case .source:
            loop.addSource(forMode: mode, signaled: true) { source in
                if leaving { source.invalidate() }
                act()
            }
        case .port:
            try loop.addReadyPipe(forMode: mode) { source in
                if leaving { source.invalidate() }
                act()
            }
        case .timer: loop.addTimer(forMode: mode, at: clock.now) { _ in act() }
        }
    }

    /// The trace of a run that ends with the pass in which this callout did something, and whose end leaves no notification out.
    public var traceOfOnePass: String {
        switch self {
        case .entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting: "E T S W A X"
        case .block: "E T S block W A X"
        case .source, .perform, .port: "E T S \(rawValue) X"
        case .timer: "E T S W A timer X"
        }
    }
}

// MARK: - Small boxes

public final class Once: Sendable {
    private let used = Atomic(false)
    public init() {}
    public func isFirst() -> Bool { !used.exchange(true, ordering: .relaxed) }
}

public final class Counter: Sendable {
    private let count = Atomic(0)
    public init() {}
    public var value: Int { count.load(ordering: .sequentiallyConsistent) }
    @discardableResult
    public func increment() -> Int { count.wrappingAdd(1, ordering: .sequentiallyConsistent).newValue }
}

/// A value that a closure needs and that is made after it.
public final class WeakReference<Object: AnyObject & Sendable>: Sendable {
    private struct Holder { weak var object: Object? }
    private let holder = Locked(Holder())
    public init(_ object: Object? = nil) { value = object }
    public var value: Object? {
        get { holder.withLock { $0.object } }
        set { holder.withLock { $0.object = newValue } }
    }
}

/// Something for a closure to capture, so that a test sees when the closure is let go of, and where.
public final class Witness: Sendable {
    private let onRelease: @Sendable () -> Void
    public init(onRelease: @escaping @Sendable () -> Void = {}) { self.onRelease = onRelease }
    deinit { onRelease() }
    /// Says that a closure needs the witness.
    public func testify() {}
}

// MARK: - Threads that meet

/// Opened by one thread, waited for by others.
public final class Gate: Sendable {
    private let pipe = Pipe()
    /// Touched on both sides: ThreadSanitizer takes a read for an order of two threads, and a gate is only looked at.
    private let openings = Box(0)
    public init() {}
    public func open() {
        openings.increment()
        pipe.write()
    }

    /// Records an issue if nobody opens it in time.
    public func wait(_ location: SourceLocation = #_sourceLocation) {
        do { try waitUntilReadable(pipe.readEnd, "somebody opens the gate", location) } catch {
            Issue.record(error, sourceLocation: location)
        }
        _ = openings.value
    }

    /// The same for a task, which must not block a thread of the pool that somebody may need.
    public func waitInTask(_ location: SourceLocation = #_sourceLocation) async throws {
        try await suspendUntil("somebody opens the gate", location) {
            var entry = pollfd(fd: pipe.readEnd, events: Int16(POLLIN), revents: 0)
            return poll(&entry, 1, 0) == 1
        }
        _ = openings.value
    }
}

public func currentThread() -> UInt {
    #if canImport(Glibc)
    UInt(pthread_self())
    #else
    UInt(bitPattern: pthread_self())
    #endif
}

/// A thread whose loop runs in real time, for tests that act on it from outside. Its mode is never empty.
public final class RunningLoop: Sendable {
    public let loop: RunLoop
    public let threadID: UInt
    private let mode: RunLoop.Mode
    private let thread: JoinableThread<RunLoop.RunResult>

    /// `setup` comes first on the new thread; `init` returns after it.
    public init(mode: RunLoop.Mode = .default, setup: @escaping @Sendable (RunLoop) -> Void = { _ in }) {
        let published = Box<(RunLoop, UInt)?>(nil)
        let ready = Gate()
        thread = joinableThread { loop in
            loop.addIdleSource(forMode: mode)
            setup(loop)
            published.value = (loop, currentThread())
            ready.open()
            return loop.run(mode: mode, for: generously)
        }
        self.mode = mode
        ready.wait()
        (loop, threadID) = published.value!
    }

    /// Ends the run and the thread; returns the run's result.
    @discardableResult
    public func end(_ location: SourceLocation = #_sourceLocation) throws -> RunLoop.RunResult {
        let loop = loop
        loop.perform(inModes: [mode]) { loop.stop() }
        return try thread.join(location)
    }

    /// Waits for the thread to end by itself.
    @discardableResult
    public func join(_ location: SourceLocation = #_sourceLocation) throws -> RunLoop.RunResult { try thread.join(location) }
}
