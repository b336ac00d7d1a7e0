// Lifecycle of a loop: the thread's exit handler (a pthread key) holds one reference from the first `current` to the thread's end; the thread-local
// variable that `current` reads holds none. Users may hold the object longer: it is ended then, and harmless.

internal import CPlatform
internal import EventLoopLibC
import Synchronization

enum LoopLifetime {
    static var main: RunLoop {
        guard let loop = cplatform_main_loop() else { return LoopRegistry.makeMain() }
        return Unmanaged<RunLoop>.fromOpaque(loop).takeUnretainedValue()
    }

    /// The calling thread's loop, which the caller knows to have one.
    static var unsafeCurrent: RunLoop { Unmanaged<RunLoop>.fromOpaque(cplatform_current_loop()!).takeUnretainedValue() }
    /// The same, borrowed: it lives as long as its thread.
    @inline(__always) static func withCurrent<R>(_ body: (RunLoop) -> R) -> R {
        Borrowed<RunLoop>(at: cplatform_current_loop()!, keptBy: .thread).use(body)  // the caller knows that there is one
    }

    static func makeLoopOfThisThread() -> RunLoop {
        if adoptMainLoopIfMainThread() { return main }
        guard let loop = RunLoop(mayUseReserve: true) else {
            preconditionFailure("no descriptor could be made for the run loop of this thread: errno \(errno)")
        }
        adopt(loop)
        return loop
    }

    /// Makes a new loop the calling thread's, until the thread exits or `endLoopOfThisThread` is called. `atEnd` is called last, on that thread.
    static func adopt(_ loop: RunLoop, atEnd: (() -> Void)? = nil) {
        LoopRegistry.add(loop)
        own(loop)
        loop.owned.atEnd = atEnd
    }

    private static func own(_ loop: RunLoop) {
        let pointer = Unmanaged.passRetained(loop).toOpaque()
        cplatform_set_current_loop(loop.id, pointer)
        loop.adoptedBy.store(cplatform_thread_id(), ordering: .relaxed)
        let code = pthread_setspecific(exitKey, pointer)
        precondition(code == 0, "pthread_setspecific: \(code)")
    }

    /// True when the caller is the main thread; its loop is `main` from then on.
    static func adoptMainLoopIfMainThread() -> Bool {
        guard cplatform_current_loop() == nil else { return LoopID.current == main.id }
        guard cplatform_is_main_thread() else { return false }
        main.shared.preconditionOurs()
        own(main)
        return true
    }

    static func endLoopOfThisThread() { /* DOES CALLOUT */ if let pointer = cplatform_current_loop() { end(pointer) } }

    /// "At thread exit, if a key value has a non-NULL destructor pointer, [...] the function pointed to is called" (pthread_key_create(3p)).
    static let exitKey: pthread_key_t = {
        var key = pthread_key_t()
        let code = pthread_key_create(&key) { pointer in
            let loop: UnsafeMutableRawPointer? = pointer
            // Another exit handler may have made a new loop. Only the thread's own loop ends here.
            if let loop, loop == cplatform_current_loop() { LoopLifetime.end(loop) }
        }
        precondition(code == 0, "pthread_key_create: \(code)")
        return key
    }()

    private static func end(_ pointer: UnsafeMutableRawPointer) { /* DOES CALLOUT */
        let owned = Unmanaged<RunLoop>.fromOpaque(pointer)
        let loop = Borrowed(owned, keptBy: .thread)
        if LoopID.current == 0 { return cplatform_set_current_loop(0, nil) }  // the parent process's
        // If a callout ends the thread, its exit handler calls this again, which continues where it stopped.
        pthread_setspecific(exitKey, pointer)
        loop.use { $0.end() }
        pthread_setspecific(exitKey, nil)
        let atEnd = loop.use { $0.owned.atEnd.take() }
        cplatform_set_current_loop(0, nil)
        // This thread no longer passes the loop's isolation checks, so the orphaned jobs' thread may.
        loop.use { loop in if loop.shared.withLock({ $0.jobs.handOver() }) { OrphanedJobExecutor.adopt(loop) } }
        owned.release()
        atEnd?()
    }
}

/// Every loop that has not ended, by id: how a thread finds the loop of an item that may be leaving it.
package enum LoopRegistry {
    private static let loops = LoopLock<[UInt64: Borrowed<RunLoop>]>([:])

    static func add(_ loop: RunLoop) { loops.withLock { $0[loop.id] = Borrowed(loop, keptBy: .record) } }

    /// The main loop, made if there is none yet: by one thread while the others wait, because at the last descriptor the others could make none.
    static func makeMain() -> RunLoop {
        LoopGlobals.prepare()  // before the lock, which it takes too
        return loops.withLock { loops in
            if let loop = cplatform_main_loop() { return Unmanaged<RunLoop>.fromOpaque(loop).takeUnretainedValue() }
            guard let loop = RunLoop(isMainLoop: true, mayUseReserve: true) else {
                preconditionFailure("no descriptor could be made for the main run loop: errno \(errno)")
            }
            loops[loop.id] = Borrowed(loop, keptBy: .record)
            cplatform_set_main_loop(Unmanaged.passRetained(loop).toOpaque())
            return loop
        }
    }

    /// Before the thread releases its loop.
    static func remove(_ id: UInt64) { loops.withLock { $0[id] = nil } }

    /// Nil when the loop has ended, or is the parent process's.
    package static func loop(_ id: UInt64) -> RunLoop? {
        if id == LoopID.current { return LoopLifetime.unsafeCurrent }
        // A registered loop is held by its thread, so it can be retained under the lock.
        return loops.withLock { $0[id]?.object }
    }

    /// For `clear`.
    private static let none: [UInt64: Borrowed<RunLoop>] = [:]

    static func hold() {
        _ = none.count
        _ = loops.lockValue()
    }
    /// Between `hold` and `release`.
    static func clear() { loops.lockedValue().initialize(to: none) }
    static func release() { loops.unlock() }
}

extension RunLoop {
    /// Releases its items, which may join other loops, drops what is queued, wakes the waiters. Called again if a callout of it has ended the thread.
    fileprivate func end() { /* DOES CALLOUT */
        endHosting()
        endCallsInProgress()
        callPassEndListeners()
        applyChanges()
        finishItems()
        // A run in one of the calls that follow returns at once, also if the thread has ended outside its runs.
        runs.terminate()
        CallInProgress.abandonAll()
        // Those whose `cancel` was being called in their own calls have left the loop only now.
        if !owned.endingUses.isEmpty { endCallsOfSources() }
        // Items are released after the lock, because a deinit is a callout.
        if !hasEnded.load(ordering: .relaxed) {
            owned.remains = shared.withLock { $0.end(self) }
            // They refer to timers that the loop does not retain any more.
            modeTable.forEach { $0.owned.timers = TimerQueue() }
        }
        hasEnded.store(true, ordering: .sequentiallyConsistent)
        runsAreUnusual.store(true, ordering: .sequentiallyConsistent)
        // Changes that other threads queued until then.
        applyChanges()
        // Not `failSources`, which would not continue if a callout ended the thread.
        while let source = owned.changeBatch.takeFailure() { source.invalidate() }  // ends: the loop refuses other sources
        releaseRemains()
        modeTable.forEach { $0.owned.poller = nil }
        Reserve.completeAgain()
        LoopRegistry.remove(id)
        time.manualClock?.leave(self)
        // Ends: a thread that drops values without end finds the lock free in between, as with any queue of the loop.
        repeat {
            applyChanges()
            finishItems()
        } while !shared.withLock({ $0.changes.closeIfEmpty() })
    }

    /// Takes each out of the list before its callouts, so that an end that goes on does not find it again.
    private func releaseRemains() { /* DOES CALLOUT */
        // Each of these ends: one goes a turn.
        while let work = owned.remains.dropped.popLast() { work.ticket?.workWasDropped() }
        while let timer = owned.remains.timers.popLast() {
            if timer.state.endsWithLoop { timer.invalidate() }
            if timer.state.exit() { timer.finish() }
        }
        forgetSeenObservers()
        while let observer = owned.remains.observers.popLast() { if observer.rundown.exit() { observer.finish() } }
        while let (membership, lost) = owned.remains.sources.last {
            if let mode = lost.first {
                owned.remains.sources[owned.remains.sources.count - 1].lost.removeFirst()
                callDidLeave(membership.source, mode)
            } else {
                release(membership)
            }
        }
        finishItems()
    }

    private func release(_ membership: SourceMembership) {
        unregister(membership)
        membership.source.forget(membership)
        if membership.source.core.pointee.traits.contains(.endsWithLoop) { membership.source.invalidate() }
        endUse(of: membership.source)
        owned.remains.sources.removeLast()
    }
}

/// What a loop held when it ended, in reverse order.
struct LoopRemains: Sendable {
    var dropped: [WorkItem] = []
    var timers: [RunLoop.Timer] = []
    var observers: [RunLoop.Observer] = []
    /// Each with the modes whose `cancel` is still to be called.
    var sources: [(membership: SourceMembership, lost: ArraySlice<ModeState>)] = []
}

extension LoopShared {
    /// Takes everything out, the closures in no order. Nothing is accepted from here on.
    fileprivate mutating func end(_ loop: RunLoop) -> LoopRemains {
        phase = .ended
        modes.forEach { $0.watchedSources.store(0, ordering: .relaxed) }
        var remains = LoopRemains()
        for membership in sources.takeAll() {
            membership.locked.isDead = true
            changes.cancelChange(of: membership)
            remains.sources.append((membership, modes.inOrderLocked(membership.locked.modes)))
            membership.locked.modes = ModeSet()
        }
        remains.timers = timers.takeAll()
        for timer in remains.timers {
            timer.clearMemberships()
            timer.state.leave()
        }
        for observer in modes.all.flatMap({ $0.locked.observers }) + commonObservers
        where observer.loopID.load(ordering: .relaxed) == loop.id {
            observer.modes = ModeSet()
            observer.isCommon = false
            observer.loopID.store(0, ordering: .sequentiallyConsistent)
            remains.observers.append(observer)
        }
        remains.observers.reverse()
        remains.dropped = modes.takeAllClosuresLocked().reversed()
        modes.forEach { mode in
            mode.locked.signaled = SignaledSources()
            mode.locked.messaged = MessagedPorts()
            for membership in mode.locked.guestLoops { mode.removeGuestLoopLocked(membership) }
            mode.removeAllObserversLocked()
        }
        commonObservers = []
        delayed = [:]  // the timers are among the others
        return remains
    }
}
