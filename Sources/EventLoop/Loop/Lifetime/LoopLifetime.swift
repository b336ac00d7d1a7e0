// The beginning and the end of a thread's loop.
//
// Lifecycle of a loop: the thread's exit handler (a pthread key) holds one reference from the first `current` to the thread's end; the
// thread-local variable that `current` reads holds none. Users may hold the object longer: it is ended then, and harmless.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

enum LoopLifetime {
    /// The main thread's loop, made by the first caller.
    static var main: RunLoop {
        guard let loop = cplatform_main_loop() else { return makeMain() }
        return Unmanaged<RunLoop>.fromOpaque(loop).takeUnretainedValue()
    }

    private static func makeMain() -> RunLoop {
        // Before the lock: a fork takes it between the beginning and the end of this.
        LoopForks.prepare()
        return LoopRegistry.main {
            guard let loop = RunLoop(isMainLoop: true, mayUseReserve: true) else {
                preconditionFailure("no descriptor could be made for the main run loop: errno \(errno)")
            }
            return loop
        }
    }

    /// The calling thread's loop, which the caller knows to have one.
    static var unsafeCurrent: RunLoop { Unmanaged<RunLoop>.fromOpaque(cplatform_current_loop()!).takeUnretainedValue() }

    /// The same, borrowed: it lives as long as its thread.
    @inline(__always)
    static func withCurrent<R>(_ body: (RunLoop) -> R) -> R {
        Unmanaged<RunLoop>.fromOpaque(cplatform_current_loop()!)._withUnsafeGuaranteedRef(body)  // the caller knows that there is one
    }

    static func makeLoopOfThisThread() -> RunLoop {
        if adoptMainLoopIfMainThread() { return main }
        guard let loop = RunLoop(mayUseReserve: true) else {
            preconditionFailure("no descriptor could be made for the run loop of this thread: errno \(errno)")
        }
        adopt(loop)
        return loop
    }

    /// Makes a new loop the calling thread's, until the thread exits or `endLoopOfThisThread` is called.
    static func adopt(_ loop: RunLoop) {
        LoopRegistry.add(loop)
        own(loop)
    }

    private static func own(_ loop: RunLoop) {
        let pointer = Unmanaged.passRetained(loop).toOpaque()
        cplatform_set_current_loop(loop.id, pointer)
        loop.noteThread()
        let code = pthread_setspecific(exitKey, pointer)
        precondition(code == 0, "pthread_setspecific: \(code)")
    }

    /// True when the caller is the main thread; its loop is `main` from then on.
    static func adoptMainLoopIfMainThread() -> Bool {
        guard LoopID.current == 0 else { return LoopID.current == main.id }
        guard cplatform_is_main_thread() else { return false }
        main.preconditionNotForked()
        own(main)
        return true
    }

    /// Ends the calling thread's loop before the thread exits.
    static func endLoopOfThisThread() { /* DOES CALLOUT */
        guard let pointer = cplatform_current_loop() else { return }
        pthread_setspecific(exitKey, nil)
        end(pointer)
    }

    /// "At thread exit, if a key value has a non-NULL destructor pointer, and the thread has a non-NULL value associated with that key ...
    /// the function pointed to is called" (pthread_key_create(3p)).
    static let exitKey: pthread_key_t = {
        var key = pthread_key_t()
        let code = pthread_key_create(&key) { pointer in
            let loop: UnsafeMutableRawPointer? = pointer
            // Other exit handlers may have looked: only the thread's own loop is ended.
            if let loop, loop == cplatform_current_loop() { LoopLifetime.end(loop) }
        }
        precondition(code == 0, "pthread_key_create: \(code)")
        return key
    }()

    private static func end(_ pointer: UnsafeMutableRawPointer) { /* DOES CALLOUT */
        let loop = Unmanaged<RunLoop>.fromOpaque(pointer)
        if loop._withUnsafeGuaranteedRef({ $0.belongsToParentProcess }) {
            // A child of fork ends: the kernel's objects are the parent's too, so they are left alone, and the loop with them.
            return cplatform_set_current_loop(0, nil)
        }
        loop.takeUnretainedValue().end()
        loop._withUnsafeGuaranteedRef { $0.releaseLast() }
        cplatform_set_current_loop(0, nil)
        // From here on this thread passes none of the loop's isolation checks, so another one may.
        loop._withUnsafeGuaranteedRef { $0.handOverJobs() }
        loop.release()
    }
}

/// Every loop that has not ended, by id: how a thread finds the loop of an item that may be leaving it.
enum LoopRegistry {
    private static let loops = ForkAwareMutex<[UInt64: Unmanaged<RunLoop>]>([:])

    static func add(_ loop: RunLoop) { loops.withLock { $0[loop.id] = Unmanaged.passUnretained(loop) } }

    /// The main loop, made with `make` if there is none yet: by one thread while the others wait, because at the last descriptor the others
    /// could make none. A fork waits too, so that a child never finds it half made.
    static func main(_ make: () -> RunLoop) -> RunLoop {
        loops.withLock { loops in
            if let loop = cplatform_main_loop() { return Unmanaged<RunLoop>.fromOpaque(loop).takeUnretainedValue() }
            let loop = make()
            loops[loop.id] = .passUnretained(loop)
            cplatform_set_main_loop(Unmanaged.passRetained(loop).toOpaque())
            return loop
        }
    }

    /// Before the thread releases its loop.
    static func remove(_ id: UInt64) { loops.withLock { $0[id] = nil } }

    /// Nil when the loop has ended, and in a child of fork for a loop of the parent's that is not the caller's own.
    static func loop(_ id: UInt64) -> RunLoop? {
        if id == LoopID.current { return LoopLifetime.unsafeCurrent }
        // A registered loop is held by its thread, so it can be retained under the lock.
        return loops.withLock { $0[id]?.takeUnretainedValue() }
    }

    /// For a child of fork: to make an empty dictionary, the runtime may look up types, under locks of its own.
    private static let none: [UInt64: Unmanaged<RunLoop>] = [:]

    static func holdOverFork() {
        _ = none.count
        _ = loops.lockValue()
    }

    static func release(inChild: Bool) {
        // The threads of these loops are the parent's. Written over: a handler of fork frees nothing.
        if inChild { loops.lockedValue().initialize(to: none) }
        loops.unlock()
    }
}

extension RunLoop {
    /// Ends the loop, on its thread: releases its items, which may join other loops, drops what is queued and wakes its waiters, and frees the
    /// kernel's objects.
    fileprivate func end() { /* DOES CALLOUT */
        endHosting()
        applyChanges()
        finishItems()
        // Nothing is released under the lock: a deinit may be the user's.
        let (sources, timers, observers, dropped, released) = shared.withLock { $0.end(self) }
        hasEnded.store(true, ordering: .sequentiallyConsistent)
        runsNeedCare.store(true, ordering: .sequentiallyConsistent)
        // Changes that other threads queued until then.
        applyChanges()
        // Not by `failSources`: a callout may end the thread while that is in progress.
        while let (source, error) = owned.changeBatch.takeFailure() { fail(source, error) }  // ends: the loop refuses other sources
        for work in dropped + takeUnperformed() { work.ticket?.workWasDropped() }
        for sleep in released.sleeps { sleep.workWasDropped() }
        for token in released.delayed { token.cancel() }
        release(timers, observers)
        release(sources)
        modeTable.forEach { $0.poller = nil }
        Reserve.completeAgain()
        LoopRegistry.remove(id)
        time.manualClock?.leave(self)
        finishItems()
        withExtendedLifetime(released) {}
    }

    /// The closures that were taken from under the lock and not performed.
    func takeUnperformed() -> [WorkItem] {
        modeTable.all.flatMap { $0.performing.removeAll() } + common.performing.removeAll()
    }

    private func release(_ timers: [Timer], _ observers: [Observer]) {
        for timer in timers {
            if timer.endsWithLoop { timer.invalidate() }
            if timer.state.exit() { timer.finish() }
        }
        forgetSeenObservers()
        for observer in observers where observer.rundown.exit() { observer.finish() }
    }

    private func release(_ sources: [(SourceMembership, lost: [ModeState])]) { /* DOES CALLOUT */
        for (membership, lost) in sources {
            forgetParked(membership)
            // Ends: one goes a turn.
            while let last = membership.anyRegistration { unregister(membership, modeIndex: Int(last.pointee.tag)) }
            let source = membership.source
            for mode in lost { source.didLeave(self, mode.name) }
            source.forget(membership)
            endUse(of: source)
        }
        finishItems()
    }
}

/// The other objects that a loop held, beside its items.
struct ReleasedAtEnd: Sendable {
    let sleeps: [PerformRequest]
    let delayed: [RunLoop.DelayedPerform]
}

extension LoopShared {
    /// Takes everything out. Nothing is accepted from here on.
    fileprivate mutating func end(
        _ loop: RunLoop
    ) -> (
        sources: [(SourceMembership, lost: [ModeState])], timers: [RunLoop.Timer], observers: [RunLoop.Observer],
        dropped: [WorkItem], released: ReleasedAtEnd
    ) {
        phase = .ended
        let released = ReleasedAtEnd(sleeps: sleeps.takeAll(), delayed: delayed.takeAll())
        modes.forEach { $0.watchedSources.store(0, ordering: .relaxed) }
        let endedSources = sources.takeAll().map { membership in
            membership.isDead = true
            changes.cancelChange(of: membership)
            let lost = modes.all.filter { membership.modes.contains($0.index) }
            membership.modes = ModeSet()
            return (membership, lost: lost)
        }
        let endedTimers = timers.takeAll()
        for timer in endedTimers {
            timer.clearMemberships()
            timer.state.leave()
        }
        var endedObservers: [RunLoop.Observer] = []
        for observer in modes.all.flatMap(\.observers) + commonObservers where observer.loopID.load(ordering: .relaxed) == loop.id {
            observer.modes = ModeSet()
            observer.isCommon = false
            observer.loopID.store(0, ordering: .sequentiallyConsistent)
            endedObservers.append(observer)
        }
        let dropped = modes.takeAllClosuresLocked()
        modes.forEach { mode in
            mode.signaled.removeAll()
            mode.messaged.removeAll()
            mode.removeAllGuestLoopsLocked()
            mode.removeAllObserversLocked()
        }
        commonObservers = []
        return (endedSources, endedTimers, endedObservers, dropped, released)
    }
}
