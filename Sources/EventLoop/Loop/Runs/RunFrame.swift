import Synchronization

/// One run in progress. Kept for the next run at the same depth, as long as the loop lives.
final class RunFrame: Sendable {
    /// Whether the run is in progress, and the stops that it has got. Other threads touch only this, and read the index of the mode.
    private let stopWord = Atomic<UInt8>(StopWord.idle)
    let modeIndex = Atomic<Int>(-1)
    let outer: Borrowed<RunFrame>?

    private enum StopWord { static let idle: UInt8 = 0, running: UInt8 = 1, stopRequested: UInt8 = 2, isSticky: UInt8 = 4 }

    // SAFETY: touched on the owning thread only.
    @exclusivity(unchecked) nonisolated(unsafe) var owned = Owned()

    struct Owned: ~Copyable {
        /// `RunStack` takes it at its end.
        var innerFrame: RunFrame?
        var modeReference: Borrowed<ModeState>?
        /// In the loop's time; `.min` means one pass, `.max` no limit.
        var limit = Int64.max
        var returnsAfterSource = false
        /// The run makes one pass, which does not sleep.
        var pollsOnly = false
        /// A pass that performs blocks sleeps even if its mode is empty then, as in CFRunLoop.
        var sleepsAfterBlocks = false
        /// The pass in progress does so.
        var sleepsEvenIfEmpty = false
        /// The custom sources and the due timers of the pass in progress.
        var signals = PassBatch<SourceMembership>(), timers = PassBatch<RunLoop.Timer>()
        /// A nested run has begun since the pass began to serve ready sources: the rest of the batch does not belong to this pass any more.
        var lostItsBatch = false
    }

    init(outer: Borrowed<RunFrame>?) { self.outer = outer }
    /// The mode of the run. Every run sets it before anything else; nil before the first.
    var mode: ModeState! { owned.modeReference?.object }

    /// The frame of a run that is nested in this one; made once.
    func inner() -> Borrowed<RunFrame> {
        if let innerFrame = owned.innerFrame { return Borrowed(innerFrame, keptBy: .loop) }
        let made = RunFrame(outer: Borrowed(self, keptBy: .loop))
        owned.innerFrame = made
        return Borrowed(made, keptBy: .loop)
    }

    // MARK: Stops. `RunStack` says which frame a stop is for.
    /// The run begins: from here on it takes stops.
    @inline(__always) func begin(inMode index: Int) {
        modeIndex.store(index, ordering: .relaxed)
        stopWord.store(StopWord.running, ordering: .releasing)
    }

    /// The run is over. True if a sticky stop came too late to end it; an ordinary one ends with its run.
    @inline(__always) func end() -> Bool { stopWord.exchange(StopWord.idle, ordering: .sequentiallyConsistent) & StopWord.isSticky != 0 }

    /// Adds a stop. False if the run is not in progress any more. Any thread, and signal handlers.
    func requestStop(sticky: Bool) -> Bool {
        let request = StopWord.stopRequested | (sticky ? StopWord.isSticky : 0)
        var seen = stopWord.load(ordering: .sequentiallyConsistent)
        while seen != StopWord.idle {  // ends: each iteration means that another thread has changed the word
            let (exchanged, original) = stopWord.compareExchange(expected: seen, desired: seen | request, ordering: .sequentiallyConsistent)
            if exchanged { return true }
            seen = original
        }
        return false
    }

    /// Takes the stop, sticky or not, if there is one. The owner only.
    @inline(__always) func takeStop() -> Bool {
        if stopWord.load(ordering: .sequentiallyConsistent) == StopWord.running { return false }
        return stopWord.exchange(StopWord.running, ordering: .sequentiallyConsistent) != StopWord.running
    }

    @inline(__always) var isStopRequested: Bool { stopWord.load(ordering: .sequentiallyConsistent) & StopWord.stopRequested != 0 }
}

/// The items that one pass has taken and calls one by one. A nested run gets back those that the pass has not reached.
struct PassBatch<Item> {
    private var items: ContiguousArray<Item> = []
    private var next = 0

    var isEmpty: Bool { items.isEmpty }
    @inline(__always) var hasRest: Bool { next < items.count }
    var hasSeveral: Bool { items.count > 1 }
    var rest: ArraySlice<Item> { items[min(next, items.count)...] }
    @inline(__always) mutating func fill(_ body: (inout ContiguousArray<Item>) -> Void) { body(&items) }

    /// While `hasRest`. The batch keeps the item until it is emptied.
    @inline(__always) mutating func takeNext() -> Borrowed<Item> where Item: AnyObject {
        let item = Borrowed(items[next], keptBy: .batch)
        next += 1
        return item
    }

    var reached: Item? { next > 0 && next <= items.count ? items[next - 1] : nil }

    /// Empties the batch, item by item. The caller releases the item, perhaps by the last reference: a deinit of the user's may run the loop.
    @inline(__always) mutating func popLast() -> Item? {
        let item = items.popLast()
        if item == nil { next = 0 }
        return item
    }
}
