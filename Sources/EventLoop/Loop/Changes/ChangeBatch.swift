// Carries out, before the owner waits, the changes that other threads made.

import Synchronization

/// The batch of changes that the owner carries out. Owning thread only.
struct ChangeBatch: ~Copyable {
    private(set) var isApplying = false
    /// How many changes the batch has left; nil for all that are queued when it takes the next one.
    private var left: Int?
    /// Sources that turned out not to be watchable. They have their reasons.
    fileprivate private(set) var failures = Deque<RunLoop.Source>()
    /// How deep the innermost run is in which sources are being failed; nil if none are.
    fileprivate var failingDepth: Int?
    /// The thread ends inside a batch.
    mutating func abandon() { (isApplying, failingDepth) = (false, nil) }

    /// Begins a batch of what is queued, and holds back failures until `end`. False if one is in progress, which goes on with what is queued now.
    @discardableResult
    mutating func begin() -> Bool {
        defer { (isApplying, left) = (true, nil) }
        return !isApplying
    }

    mutating func end() { isApplying = false }

    /// Whether the batch has another change; counts it. `queued`: how many the queue has.
    mutating func takeOne(of queued: Int) -> Bool {
        let left = left ?? queued
        if left <= 0 || queued == 0 { return false }
        self.left = left - 1
        return true
    }

    /// Holds back the end of a source that has failed until the batch is over. False if there is none.
    mutating func hold(_ source: RunLoop.Source) -> Bool {
        if isApplying { failures.append(source) }
        return isApplying
    }

    var hasFailures: Bool { !failures.isEmpty }
    mutating func takeFailure() -> RunLoop.Source? { failures.isEmpty ? nil : failures.popFirst() }
}

extension RunLoop {
    /// Carries out what was queued when this began; what comes meanwhile waits for the next pass, so that other threads cannot hold the owner here.
    /// Makes no callout meanwhile: items that end here wait in `owned.ended` for a safe point, and sources that fail do so at the end.
    func applyChanges() { /* DOES CALLOUT */
        applyBatch()
        if !owned.changeBatch.isApplying && owned.changeBatch.hasFailures { failSources() }
    }

    /// The same on the owning thread, in a call that must not call out: what ends or fails waits for the next safe point.
    func applyQueuedChanges() {
        applyBatch()
        leaveFailures()
    }

    /// After changes without a callout.
    private func leaveFailures() {
        if owned.changeBatch.hasFailures { owned.pending.formUnion(.changes) }
        didChangeSleep()
    }

    private func applyBatch() {
        guard owned.changeBatch.begin() else { return }
        owned.pending.subtract(.changes)
        while let change = shared.withLock({ takeChange(&$0) }) {  // ends: with the batch
            apply(change)
            // Released at the safe point: the queue may have held the last reference.
            finishLater(.applied(change.change.item))
        }
        owned.changeBatch.end()
    }

    /// A change, and what the lock guards of its item.
    private struct TakenChange: Sendable {
        let change: LoopChange
        var modes = ModeSet()
        /// The source has ended, or the timer that joined is gone.
        var isDead = false
    }

    /// The next change of the batch; nil after the last.
    private func takeChange(_ shared: inout LoopShared) -> TakenChange? {
        guard owned.changeBatch.takeOne(of: shared.changes.count) else {
            // The next pass begins with the rest, without sleeping.
            if !shared.changes.isEmpty { owned.pending.formUnion(.changes) }
            return nil
        }
        var taken = TakenChange(change: shared.changes.popFirst())
        switch taken.change {
        case .source(let change):
            (taken.modes, taken.isDead) = (change.membership.locked.modes, change.membership.locked.isDead)
            change.membership.locked.isKnownToOwner = true
        case .timerJoined(let timer, let membership):
            // Only when the loop has ended: a thread that takes a timer out takes its change out.
            taken.isDead = !isTimer(timer, filedAs: membership)
            if !taken.isDead { timer.markFiled(inMode: membership.modeIndex) }
        case .timerChanged(let timer):
            // Unless the loop has ended: then another one may have the timer by now.
            if isHereLocked(timer) { timer.forgetQueuedRedate() }
        case .timerLeft, .timerDied, .observerDied, .call: break
        }
        return taken
    }

    /// Fails the sources that cannot be watched, one after another. What is found to fail in their last callouts waits for the next pass (rule 4.19).
    func failSources() { /* DOES CALLOUT */
        let outerDepth = owned.changeBatch.failingDepth
        if outerDepth == runs.depth { return }  // the run of that depth does so already
        owned.changeBatch.failingDepth = runs.depth
        for _ in 0..<owned.changeBatch.failures.count {
            // A run nested in a callout may have failed some of them.
            guard let source = owned.changeBatch.takeFailure() else { break }
            source.invalidate()
        }
        owned.changeBatch.failingDepth = outerDepth
        if owned.changeBatch.hasFailures { owned.pending.formUnion(.changes) }
    }

    /// Carries out a change of the owner's at once, after all that are queued; elsewhere queues it and wakes the owner. False if the loop has ended.
    @discardableResult
    private func submit(_ queue: (inout LoopShared) -> Void) -> Bool {
        let isAccepted = shared.withLock { shared in
            if shared.phase == .ended { return false }
            queue(&shared)
            return true
        }
        if isAccepted { carryOutChanges() }
        return isAccepted
    }

    /// The owner reads the source's `watch` again. Without `callsOut`, what ends or fails waits for the next safe point: the caller holds a lock.
    func submitRewatch(of membership: SourceMembership, callsOut: Bool = true) { /* DOES CALLOUT */
        if !callsOut && isCurrent && !owned.changeBatch.isApplying { return rewatchWithoutCallout(membership) }
        submit { if !membership.locked.isDead { $0.changes.enqueueChange(of: membership, isRewatched: true) } }
    }

    private func rewatchWithoutCallout(_ membership: SourceMembership) {
        let isNext = shared.withLock { shared in
            if membership.locked.isDead { return false }
            if !shared.changes.isEmpty { shared.changes.enqueueChange(of: membership, isRewatched: true) }
            return shared.changes.isEmpty
        }
        if !isNext { return applyQueuedChanges() }
        owned.changeBatch.begin()
        updateRegistrations(membership)
        owned.changeBatch.end()
        leaveFailures()
    }

    /// Ends the use of a dead membership of a source that the kernel does not watch: on the owning thread at once, because nothing of it is queued.
    func end(_ membership: SourceMembership) { /* DOES CALLOUT */
        if LoopID.current == id && !owned.changeBatch.isApplying {
            applyEnd(of: membership)
            finishItemsIfSafe()
            didChangeSleep(callsOut: true)
        } else if !submit({ $0.changes.enqueueChange(of: membership) }) && membership.source.rundown.exit() {
            membership.source.finish()
        }
    }

    /// The owner ends the use of an observer that has left. False if the loop has ended.
    func submitEnd(of observer: Observer) -> Bool { submit { $0.changes.enqueueEnd(observer) } }

    /// The owner files a timer under its present date. Nothing if the timer has left this loop: the loop that took it has read the date.
    func submitRedate(of timer: Timer) {
        let mustTell = shared.withLock { shared in isHereLocked(timer) && shared.changes.enqueueRedate(timer) }
        if mustTell { carryOutChanges() }
    }

    /// Has the loop's thread call `release`, for a value that no other thread may release: at its next safe point, or as it ends. If it has made its
    /// last callout, the caller's thread releases the closure with the value. On other threads than the loop's.
    func releaseOnThread(_ release: @escaping @Sendable () -> Void) {
        let isAccepted = shared.withLockIfOwn { shared in
            if shared.changes.isClosed { return false }
            shared.changes.enqueueCall(release)
            return true
        }
        if isAccepted == true { notify(.changes) }
    }

    /// Carries out what was queued, on the owning thread; elsewhere wakes the owner.
    func carryOutChanges() {
        if !isCurrent { return notify(.changes) }
        applyChanges()
        finishItemsIfSafe()
        didChangeSleep(callsOut: true)
    }

    private func apply(_ taken: TakenChange) {
        switch taken.change {
        case .source(let change):
            if taken.isDead { return applyEnd(of: change.membership) }
            apply(change.membership, modes: taken.modes, left: change.left, isRewatched: change.isRewatched)
        case .timerJoined(let timer, let membership):
            if !taken.isDead { file(timer, membership) }
        case .timerLeft(_, let membership):
            modeTable.reference(membership.modeIndex).use { mode in
                mode.owned.timers.remove(membership.slot)
                shared.withLock { _ in mode.locked.timerSlots.giveBack(membership.slot) }
            }
        case .timerChanged(let timer):
            fileAgain(timer)
        case .timerDied(let timer):
            // This thread may have set a date while another thread moved the timer to another loop.
            let loopID = timer.state.latest.loopID
            if loopID != 0 && loopID != id { timer.submitRedate(loopID) }
            endUse(of: timer)
        case .observerDied(let observer):
            forgetSeenObservers()
            // Another loop's call is that loop's to wait for.
            if observer.callingLoop.load(ordering: .relaxed) == id { owned.observersInCall.append(observer) } else { endUse(of: observer) }
        case .call(let call):
            finishLater(.call(call))
        }
    }

    /// Carries out a change of the owner's own that was not queued. `modes`: those that the source has gained.
    func applyAtOnce(_ membership: SourceMembership, modes: ModeSet = ModeSet(), left: ModeSet = ModeSet(), isDead: Bool = false)
    { /* DOES CALLOUT */
        owned.changeBatch.begin()
        if isDead { applyEnd(of: membership) } else { apply(membership, modes: modes, left: left) }
        owned.changeBatch.end()
        if owned.changeBatch.hasFailures { failSources() }
        finishItemsIfSafe()
        didChangeSleep(callsOut: true)
    }

    private func apply(_ membership: SourceMembership, modes: ModeSet, left: ModeSet, isRewatched: Bool = false) {
        left.forEach { unregister(membership, modeIndex: $0) }
        // No-op for modes that have it already.
        modes.forEach { index in
            if !membership.owned.parkedModes.contains(index) { modeTable.reference(index).use { register(membership, in: $0) } }
        }
        if isRewatched { updateRegistrations(membership) }
    }

    /// Takes the source off every base, then ends the membership's use of it.
    func applyEnd(of membership: SourceMembership) {
        unregister(membership)
        Borrowed(membership.source, keptBy: .membership).use { if isServing($0) { endUseAfterCalls(of: $0) } else { endUse(of: $0) } }
    }

    func endUse(of timer: Timer) { if timer.state.exit() { finishLater(.timer(timer)) } }
    func endUse(of source: Source) { if source.rundown.exit() { finishLater(.source(source)) } }
    func endUse(of observer: Observer) { if observer.rundown.exit() { finishLater(.observer(observer)) } }

    /// At the next safe point.
    @inline(__always) func finishLater(_ item: FinishedItem) {
        owned.ended.append(item)
        owned.pending.formUnion(.finishing)
    }

    /// Makes the last callouts of items that have ended, and releases their handlers. A source stays on the list until its last `onInvalidation`
    /// closure is taken: a run that is nested in one of its callouts makes the others.
    func finishItems() { /* DOES CALLOUT */
        owned.pending.subtract(.finishing)
        while let isAwaited = owned.ended.withFirst({ $0.isAwaited }) {  // ends: each item ends once
            if isAwaited, case .source(let source)? = owned.ended.withFirst({ copy $0 }) {
                source.releaseHandlers()
                let span = openSpan(modeTable[max(0, runs.modeIndex)], source.callout(.invalidation))
                // A run nested in a deinit of what the handler held may have called it.
                closeSpan(span, isCalled: source.callNextInvalidationBody())
                continue
            }
            switch owned.ended.popFirst() {
            case .source(let source): source.finish(isAwaited: false)
            case .timer(let timer): timer.finish()
            case .observer(let observer): observer.finish()
            case .applied: break  // released here
            case .call(let call): call.body()
            }
        }
    }

    /// As `finishItems`, unless the owner is on its way to sleep, where no callout may be made: then the next pass does it.
    func finishItemsIfSafe() { /* DOES CALLOUT */ if mayCallOut && !owned.changeBatch.isApplying { finishItems() } }
}

/// What the owner finishes at the next safe point.
enum FinishedItem: Sendable {
    case source(RunLoop.Source)
    case timer(RunLoop.Timer)
    case observer(RunLoop.Observer)
    /// The item of a change that was carried out. The queue may have held the last reference, and a deinit is a callout.
    case applied(any AnyObject & Sendable)
    /// The report of what libevent has logged while changes were carried out, or the release of a value that only this thread may release.
    case call(LaterCall)
    /// Somebody waits for the end of the source.
    var isAwaited: Bool { if case .source(let source) = self { source.hasInvalidationBodies } else { false } }
}

/// An object, since a closure would make every item larger.
final class LaterCall: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}
