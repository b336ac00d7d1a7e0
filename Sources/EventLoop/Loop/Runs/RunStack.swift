// The runs in progress, one inside another, and which of them a stop ends. Tests/Models/stop.pml checks every interleaving of its steps.

import Synchronization

/// The owner pushes and pops. Other threads and signal handlers read the depth and the mode, and stop the innermost run: they touch atomics only. The
/// frames live as long as the loop, so a frame that was innermost a moment ago can be asked whether it still is in progress.
struct RunStack: ~Copyable, Sendable {
    private let outermost = RunFrame(outer: nil)
    private let innermost = Atomic<UInt>(0)
    private let depthWord = Atomic<Int>(0)
    /// A sticky stop that waits for the next run.
    private let pendingStop = Atomic<Bool>(false)
    /// Every run ends, however deep: the loop's `RunLoopThread` was stopped, or the thread ends.
    private let terminating = Atomic<Bool>(false)

    deinit {
        // One by one, because releasing a chain recurses.
        var frame = outermost.owned.innerFrame.take()
        while let outer = frame { frame = outer.owned.innerFrame.take() }  // ends: the chain has an end
    }

    // MARK: Any thread
    @inline(__always) var depth: Int { depthWord.load(ordering: .acquiring) }

    /// The index of the innermost run's mode, or -1.
    @inline(__always) var modeIndex: Int {
        guard let pointer = UnsafeRawPointer(bitPattern: innermost.load(ordering: .acquiring)) else { return -1 }
        return Borrowed<RunFrame>(at: pointer, keptBy: .loop).use { $0.modeIndex.load(ordering: .acquiring) }
    }

    @inline(__always) var isTerminating: Bool { terminating.load(ordering: .acquiring) }
    /// Ends every run, now and from now on, until `resume`.
    borrowing func terminate() { terminating.store(true, ordering: .sequentiallyConsistent) }
    borrowing func resume() { terminating.store(false, ordering: .sequentiallyConsistent) }

    /// Stops the innermost run; if there is none, keeps a sticky stop. True if a run got it: the caller wakes the loop. Async-signal-safe.
    borrowing func requestStop(sticky: Bool) -> Bool {
        while true {  // ends: each iteration means that the run which was innermost has ended meanwhile
            if let pointer = UnsafeRawPointer(bitPattern: innermost.load(ordering: .sequentiallyConsistent)) {
                if Borrowed<RunFrame>(at: pointer, keptBy: .loop).use({ $0.requestStop(sticky: sticky) }) { return true }
                continue
            }
            if !sticky { return false }
            pendingStop.store(true, ordering: .sequentiallyConsistent)
            // A run that began meanwhile may have looked before the store.
            if innermost.load(ordering: .sequentiallyConsistent) == 0 || !takePendingStop() { return false }
        }
    }

    @inline(__always) var hasPendingStop: Bool { pendingStop.load(ordering: .sequentiallyConsistent) }

    @inline(__always)
    borrowing func takePendingStop() -> Bool { hasPendingStop && pendingStop.exchange(false, ordering: .sequentiallyConsistent) }

    // MARK: The owner
    @inline(__always) borrowing func pushOutermost() -> Borrowed<RunFrame> {
        outermost.begin(inMode: -1)  // first, so that a thread that finds the frame innermost finds it running
        let frame = Borrowed(outermost, keptBy: .loop)
        // `requestStop` leaves a stop for the next run and then looks here; the run looks for a stop after this store.
        innermost.store(UInt(bitPattern: frame.address), ordering: .sequentiallyConsistent)
        depthWord.store(1, ordering: .releasing)
        return frame
    }

    @inline(__always) borrowing func pushNested(in depth: Int) -> Borrowed<RunFrame> {
        let frame = innermostFrame.use { $0.inner() }
        let outerMode = modeIndex  // the current mode until this run has its own
        frame.use { $0.begin(inMode: outerMode) }
        innermost.store(UInt(bitPattern: frame.address), ordering: .releasing)
        depthWord.store(depth + 1, ordering: .releasing)
        return frame
    }

    /// Ends the innermost run. True if it leaves a sticky stop: see `RunFrame.end`.
    @inline(__always) borrowing func pop(_ frame: RunFrame) -> Bool {
        depthWord.store(depthWord.load(ordering: .relaxed) - 1, ordering: .releasing)
        innermost.store(frame.outer.map { UInt(bitPattern: $0.address) } ?? 0, ordering: .releasing)
        return frame.end()
    }

    /// The thread ends inside the innermost run. Nil outside any run.
    borrowing func abandonInnermost() -> RunFrame? {
        if depth == 0 { return nil }
        let frame = innermostFrame.object
        _ = pop(frame)
        return frame
    }

    /// Takes the stop of a run, if there is one. Termination stops every run and is not used up.
    @inline(__always) borrowing func takeStop(_ frame: RunFrame) -> Bool { isTerminating || frame.takeStop() }
    /// Whether the run is to end after the pass in progress.
    @inline(__always) borrowing func isStopRequested(_ frame: RunFrame) -> Bool { frame.isStopRequested || isTerminating }

    borrowing func forEachFrame(_ body: (RunFrame) -> Void) {
        var frame = Borrowed(outermost, keptBy: .loop)
        for level in 0..<depth {
            if level > 0 { frame = frame.use { $0.inner() } }
            frame.use(body)
        }
    }

    /// The frame of the innermost run; there must be one.
    @inline(__always) var innermostFrame: Borrowed<RunFrame> {
        Borrowed(at: UnsafeRawPointer(bitPattern: innermost.load(ordering: .relaxed))!, keptBy: .loop)  // a run is in progress
    }
}

/// Knows whether a run continues in the mode that ran before. Owning thread only.
struct ModeHistory {
    /// Counts the changes from one mode to another.
    private(set) var phase: UInt32 = 0
    /// The only mode that has run in this phase, and for which the pending bits are complete; -1 if there were several.
    private var lastIndex = -1

    /// A run begins, or the owner looks for work of a hosted mode; -1 for several. True if it may have dropped bits that were set for that mode.
    @inline(__always) mutating func turn(to index: Int, isNested: Bool) -> Bool {
        if !isNested && lastIndex == index { return false }
        lastIndex = isNested ? -1 : index
        phase &+= 1
        return true
    }
}
