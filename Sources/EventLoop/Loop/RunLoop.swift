// The run loop: one per thread. Steps.swift has the ten steps; each part of the state is a type of its own.

internal import CPlatform
import Synchronization

/// One event-processing loop per thread (CFRunLoop, NSRunLoop).
///
/// A loop is made when its thread first asks for `current`, and ends with the thread. Every member is safe to use from any thread, except that only
/// the owning thread runs the loop and touches its libevent bases. Handlers run on the owning thread, with no lock held.
public final class RunLoop: Sendable {
    // MARK: Fixed
    package let id: UInt64
    let isMainLoop: Bool

    // MARK: Touched by any thread without the lock, signal handlers included
    let waker: Waker
    let runs = RunStack()
    let modeTable: ModeTable
    /// The closures and counts of all common modes: the table's.
    let common: ClosureQueues
    /// Counts what leaves a mode: a snapshot that was taken at the same count is still good.
    let removals = Atomic<UInt64>(0)
    let time = LoopTime()
    let hasEnded = Atomic<Bool>(false)
    /// The loop has ended, is hosted, or is observed: see `prepareUnusualRun`.
    let runsAreUnusual = Atomic<Bool>(false)
    let counters = Counters()
    let observation = AtomicLazyReference<Observation>()
    /// The kernel's id of the owning thread. Zero before the thread has adopted the loop, and where threads have no such id.
    let adoptedBy = Atomic<Int32>(0)

    // MARK: Guarded by the lock
    let shared: LockedLoop

    // MARK: Owned by the loop's thread
    // SAFETY: touched on the owning thread only, and `jobs` after the loop's end on that of `OrphanedJobExecutor`. `preconditionOnLoop` guards
    // every entry from outside. No access spans a callout; the run-time check for that was a quarter of a pass's instructions. Stored, not behind
    // an accessor that asserts the thread: where the compiler does not inline it, it copies the whole struct to memory that it allocates.
    @exclusivity(unchecked) nonisolated(unsafe) var owned = LoopOwned()

    /// Nil with errno set when there are no descriptors left; with `mayUseReserve`, when there are none in reserve either.
    convenience init?(isMainLoop: Bool = false, mayUseReserve: Bool = false) {
        LoopGlobals.prepare()
        guard let channel = WakeChannel() ?? WakeChannel.madeBetweenChecks() ?? (mayUseReserve ? Reserve.takeChannel() : nil) else {
            return nil
        }
        self.init(waking: channel, isMainLoop: isMainLoop)
    }

    /// After `LoopGlobals.prepare()`.
    init(waking channel: consuming WakeChannel, isMainLoop: Bool = false) {
        waker = Waker(channel)
        self.isMainLoop = isMainLoop
        id = LoopID.make()
        modeTable = ModeTable()
        common = modeTable.common
        shared = LockedLoop(LoopShared(modeTable))
    }

    deinit { assert(runs.depth == 0, "a loop ends outside its runs") }
    /// The kernel's id of the owning thread; zero where threads have no such id. Any thread.
    package var threadID: Int32 { isMainLoop ? cplatform_main_thread_id() : adoptedBy.load(ordering: .relaxed) }
    /// The name for people: of the `RunLoopThread` that the loop was made by, or `main`; nil for other threads. Thread-safe.
    package var givenName: String? { isMainLoop ? "main" : shared.withLockIfOwn { $0.threadName } ?? nil }

    /// The calling thread's loop, made on first use and ended when the thread exits.
    ///
    /// Traps when the process has no descriptors left for a new loop, nor the one that it keeps in reserve, and in a child process on the thread of
    /// an inherited loop. See `CFRunLoopGetCurrent`.
    @available(*, noasync, message: "an async function has no thread of its own; keep the RunLoop you mean")
    public static var current: RunLoop { threadsLoop() }
    /// The main thread's loop, from any thread. While it runs in a common mode it also serves `DispatchQueue.main` and `@MainActor`, and is never
    /// `.finished` there. See `CFRunLoopGetMain`.
    public static var main: RunLoop { LoopLifetime.main }

    /// Whether the caller is on the owning thread. Thread-safe.
    public var isCurrent: Bool {
        if LoopID.current == id { return true }
        return isMainLoop && isOurs && LoopLifetime.adoptMainLoopIfMainThread() && LoopID.current == id
    }

    /// False once the owning thread has exited. Thread-safe.
    public var isValid: Bool { !hasEnded.load(ordering: .acquiring) }

    @inline(__always) func preconditionOnLoop(_ call: StaticString) {
        shared.preconditionOurs()
        if LoopID.current != id { preconditionCurrent(call) }
    }

    @inline(never) private func preconditionCurrent(_ call: StaticString) {
        precondition(
            isCurrent,
            "\(call) was called on another thread than the run loop's own; hand the work over with perform, or run RunLoop.current")
    }

    /// Whether the caller is on the owning thread, or, once that has ended, in a job that `OrphanedJobExecutor` runs in its place. Thread-safe.
    @inline(__always) var isIsolatingCaller: Bool { isCurrent || LoopID.adopted == id }
    @inline(__always) package var isOurs: Bool { shared.isOurs }
}

extension RunLoop {
    /// `current`, for synchronous code that the compiler cannot tell from async.
    package static func threadsLoop() -> RunLoop {
        guard let pointer = cplatform_current_loop() else { return LoopLifetime.makeLoopOfThisThread() }
        let loop = Unmanaged<RunLoop>.fromOpaque(pointer).takeUnretainedValue()
        loop.shared.preconditionOurs()
        return loop
    }

    /// How a run ended. Of several that apply: `handledSource`, `stopped`, `timedOut`, `finished`, in this order.
    public enum RunResult: Sendable, Equatable {
        /// The mode was or became empty, or cannot be run (`.common`).
        case finished
        /// `stop()` ended it.
        case stopped
        /// The limit passed.
        case timedOut
        /// A source was handled, and the run was to return then.
        case handledSource
    }
}
