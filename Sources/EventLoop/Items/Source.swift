extension RunLoop {
    /// The base class of all input sources: validity, label, invalidation. Subclasses are the library's: no program can call its initializer.
    /// Thread-safe. A source may be in many modes of many loops.
    open class Source: @unchecked Sendable {
        // SAFETY: stored properties are constants, atomics, or guarded by the mutex of `state`. Subclasses say what guards theirs.

        /// For warnings, recordings and `debugDescription`.
        public let label: String?
        let site: CreationSite
        let kind: SourceKind
        /// What a recording calls a call of the handler.
        let recordedKind: Recording.Kind
        private let mark = ProcessMark()
        let state = LoopLock(SourceState())
        /// What serving needs. It lives as long as the source.
        let core: SourceCorePointer

        /// `traits` are those that the class adds.
        init(
            kind: SourceKind, recordedKind: Recording.Kind = .descriptorSource, label: String?, site: CreationSite,
            traits: SourceCore.Traits = []
        ) {
            (self.kind, self.recordedKind, self.label, self.site) = (kind, recordedKind, label, site)
            core = .make(traits: kind.isWatched ? traits.union(.isWatched) : traits)
            core.pointee.object = UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque())
        }

        deinit { core.free() }

        final var rundown: Rundown { @inline(__always) _read { yield core.pointee.rundown } }
        /// Whether only the parent process may read its descriptor. It joins no loop then, where it would be readable in every pass.
        final var isOfParent: Bool { core.pointee.traits.contains(.isOfOneProcess) && !mark.isOurs }
        /// False after the source was invalidated, or failed by itself. Thread-safe.
        public var isValid: Bool { rundown.isValid }

        /// Why the source failed by itself (its descriptor was closed, the kernel refused it); nil if it did not. Also `.badDescriptor` if the source
        /// was invalidated by hand after its descriptor had been closed.
        public var failure: SourceError? { state.withLock { $0.rare?.failure } }

        /// Calls `body` once, when no call of the handler is in progress and none can follow, as the form that passes the source.
        ///
        /// If the closure needs the source, use that form: `onInvalidation { close($0.descriptor) }`. A closure that captures
        /// the source creates a reference cycle, which lasts until the source is invalidated. Thread-safe.
        public func onInvalidation(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */ addInvalidation { _ in body() } }

        final func addInvalidation(_ body: @escaping @Sendable (Source) -> Void) { /* DOES CALLOUT */
            let isFinished = state.withLock { state in
                if !state.isFinished { state.addInvalidation(body) }
                return state.isFinished
            }
            if isFinished { body(self) }
        }

        /// The loop invalidates the source when it ends; otherwise one that is retained may join another loop. Before another thread sees it.
        package final func endWithLoop() { core.pointee.traits.insert(.endsWithLoop) }

        /// Says why the source ends, unless an earlier reason is known.
        package final func noteFailure(_ error: SourceError) {
            state.withLock { if $0.rare?.failure == nil { $0.madeRare().failure = error } }
        }

        // MARK: For subclasses
        /// What the kernel watches for this source; nil if it watches nothing.
        var watch: Watch? { nil }
        /// Called on the loop's thread before the kernel watches the source in one of the loop's modes.
        func willBeWatched() {}
        /// Calls the handler for what `ready` says; false if that is nothing. On the owning thread, while the source is in the mode that runs.
        func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */ preconditionFailure("a source that is watched overrides serve(_:)") }
        /// Whether a message waits. Thread-safe. Reads only atomics, so it may be called under a loop's lock.
        var hasMessage: Bool { false }
        /// The number of the latest message.
        var lastMessage: UInt64 { 0 }
        /// Delivers one message whose number is at most `last`; false if there is none. `onlyOne`: the caller asks for no further message in this
        /// step. On the owning thread, which has claimed the source (`servingLoop`).
        func serveMessage(upTo last: UInt64, onlyOne: Bool) -> Bool { /* DOES CALLOUT */ preconditionFailure("a port overrides this") }
        /// Called at the end of the outermost step that serves messages, before the claim ends. Returns undelivered messages to the queue.
        func returnMessages() { /* DOES CALLOUT */  }
        /// The loop's thread has ended in calls of the handler. Called once for all of them, on that thread, before the claim ends.
        func endAbandonedCalls() { /* DOES CALLOUT */ returnMessages() }
        /// Called after the source was added to a mode of a loop.
        func didJoin(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */  }
        /// Called after the source was removed from a mode of a loop.
        func didLeave(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */  }
        /// Whether `didJoin` calls a closure of this source, which may end the thread.
        final var callsOutWhenJoining: Bool { core.pointee.traits.contains(.callsOutWhenJoining) }
        /// Whether `didLeave` does.
        final var callsOutWhenLeaving: Bool { core.pointee.traits.contains(.callsOutWhenLeaving) }
        /// Called once, on the thread that invalidates the source, before the loops remove it; not if the last release invalidates it.
        func didInvalidate() { /* DOES CALLOUT */  }
        /// When no call is in progress and none can follow. Called again, it does nothing.
        func releaseHandlers() {}
        /// Whether somebody waits for the end of the source.
        final var hasInvalidationBodies: Bool { state.withLock { $0.hasInvalidationBodies } }
        /// False if the source can do all that it is made for without being in a mode.
        var isOfUseInMode: Bool { true }
        /// Whether it reads the wall time of its loops: then it is only in loops of one clock.
        var goesByWallTime: Bool { false }
        /// For descriptions: the type in a word or two, and what waits in the source.
        var typeDescription: String { "source" }

        // MARK: The end
        /// Ends a use of `rundown` that the caller has begun.
        final func endUse() { /* DOES CALLOUT */ if rundown.exit() { finish() } }

        /// Releases the handlers and calls the `onInvalidation` closures, also if one of these ends the thread. Only the caller that ended the last
        /// use of `rundown` may call it. `isAwaited`: false if the caller has found no such closures.
        final func finish(isAwaited: Bool = true) { /* DOES CALLOUT */
            let isAwaited = isAwaited && state.withLockIfOwn({ $0.hasInvalidationBodies }) ?? false
            if isAwaited { CallInProgress.begin(by: self) { self.finish() } }
            releaseHandlers()
            while callNextInvalidationBody() {}  // ends: a closure that is added from now on is called at once
            if isAwaited { CallInProgress.end(by: self) }
        }

        /// The last release of a valid source invalidates it. The deinit of each subclass calls this: the closures receive the whole source.
        package final func endByLastRelease() { /* DOES CALLOUT */
            // A source that was invalidated before is finished, because every use retains it.
            guard rundown.invalidate().first else { return }
            if isOfUseInMode && state.withLockIfOwn({ !$0.wasAdded }) ?? false { warnOfRelease() }
            finish()
        }

        /// False if there is none.
        final func callNextInvalidationBody() -> Bool { /* DOES CALLOUT */
            // Not a closure: a closure that it returned would be wrapped in two objects.
            guard let locked = state.lockValueIfOwn() else { return false }
            let failure = locked.pointee.isFinished ? nil : locked.pointee.rare?.failure
            locked.pointee.isFinished = true
            let body = locked.pointee.takeInvalidation()
            state.unlock()
            if case .badDescriptor(let descriptor) = failure { warnOfClosing(descriptor) }
            guard let body else { return false }
            body(self)
            return true
        }
    }
}

/// What makes a source ready.
enum SourceKind: Sendable {
    /// A thread calls `signal()`. The class is `CustomSource`.
    case custom
    /// Other threads enqueue messages; `hasMessage` says whether one waits.
    case messages
    /// The kernel watches a descriptor: see `Source.watch`.
    case watched
    /// The same, in the class `DescriptorSource`, whose method is called without dynamic dispatch.
    case descriptor
    /// The kernel watches a descriptor, and the loop asks before each poll when it is to be called anyway. The class is `GuestLoop`.
    case guest
    var isWatched: Bool { self != .custom && self != .messages }
}

/// All sources, as a protocol, so that a member can use `Self`, the type of source that it is called on.
public protocol _SourceOfAKind: RunLoop.Source {}
extension RunLoop.Source: _SourceOfAKind {}

extension _SourceOfAKind {
    /// Calls `body` once, with the source, when no call of the handler is in progress and none can follow. The place to close a descriptor.
    ///
    /// ```
    /// source.onInvalidation { close($0.descriptor) }
    /// ```
    ///
    /// Runs on the owning thread, after the kernel has stopped watching the descriptor in every loop and mode. Runs at once on the caller's
    /// thread if the source is already invalid and finished, or was never added. If the last release invalidates the source, the closure
    /// must not retain it beyond the call. If this is called several times, all closures run, in order. Thread-safe.
    public func onInvalidation(_ body: @escaping @Sendable (Self) -> Void) { /* DOES CALLOUT */
        // The closure is called with this source, so the downcast is safe.
        addInvalidation { body(unsafeDowncast($0, to: Self.self)) }
    }
}

/// The state that the lock of a source guards.
struct SourceState: Sendable {
    /// One membership for each loop that the source is in, or is being added to. Most sources have one.
    private(set) var first: SourceMembership?
    /// The first closure of `onInvalidation`, which is usually the only one.
    private var firstBody: (@Sendable (RunLoop.Source) -> Void)?
    private(set) var rare: Rare?
    var isFinished = false
    /// Whether the source is or ever was in a loop.
    private(set) var wasAdded = false

    /// State that few sources need.
    final class Rare: @unchecked Sendable {
        // SAFETY: guarded by the source's lock, like the state that refers to it.

        fileprivate var others: [SourceMembership] = []
        fileprivate var otherBodies: [@Sendable (RunLoop.Source) -> Void] = []
        var failure: RunLoop.SourceError?
        fileprivate var waitingToServe: [SourceMembership] = []
        var attachment: (any AnyObject & Sendable)?
    }

    mutating func madeRare() -> Rare {
        if let rare { return rare }
        let made = Rare()
        rare = made
        return made
    }

    mutating func addInvalidation(_ body: @escaping @Sendable (RunLoop.Source) -> Void) {
        if hasInvalidationBodies { madeRare().otherBodies.append(body) } else { firstBody = body }
    }

    var hasInvalidationBodies: Bool { firstBody != nil || rare?.otherBodies.isEmpty == false }

    mutating func takeInvalidation() -> (@Sendable (RunLoop.Source) -> Void)? { firstBody.take() ?? rare?.otherBodies.takeFirst() }

    /// Adds a loop to those that wait for the handler to return on another thread.
    mutating func wait(_ membership: SourceMembership) {
        let rare = madeRare()
        if !rare.waitingToServe.contains(where: { $0 === membership }) { rare.waitingToServe.append(membership) }
    }

    mutating func takeWaiting() -> [SourceMembership] {
        defer { rare?.waitingToServe = [] }
        return rare?.waitingToServe ?? []
    }

    var memberships: [SourceMembership] { first.map { [$0] + (rare?.others ?? []) } ?? [] }
    /// All of them if there is more than one.
    var several: [SourceMembership]? { rare?.others.isEmpty == false ? memberships : nil }

    func membership(of loop: RunLoop) -> SourceMembership? {
        if let first, first.loop === loop { return first }
        return rare?.others.first { $0.loop === loop }
    }

    mutating func add(_ membership: SourceMembership) {
        wasAdded = true
        if first == nil { first = membership } else { madeRare().others.append(membership) }
    }

    mutating func remove(_ membership: SourceMembership) {
        if first !== membership { rare?.others.removeAll { $0 === membership } } else { first = rare?.others.takeFirst() }
    }

    /// Calls `body` with each membership, unretained.
    @inline(__always) func forEachMembership(_ body: (SourceMembership) -> Void) {
        if first != nil { Borrowed(first.unsafelyUnwrapped, keptBy: .list).use(body) }
        if let rare { for index in rare.others.indices { Borrowed(rare.others[index], keptBy: .list).use(body) } }
    }
}

extension Array {
    fileprivate mutating func takeFirst() -> Element? { isEmpty ? nil : removeFirst() }
}

extension RunLoop.Source {
    @inline(never) final func warnOfRelease() { /* DOES CALLOUT */
        Warnings.report(
            .unusedItem, label: label, site: site,
            "a source (\(typeDescription)) was released before it was added to a run loop, so its handler was never called; "
                + "add it to the loop")
    }

    @inline(never) final func warnOfClosing(_ descriptor: Int32) { /* DOES CALLOUT */
        Warnings.report(
            .closedDescriptor, label: label, site: site,
            "descriptor \(descriptor) was closed before its source was invalidated; "
                + "invalidate the source, and close the descriptor in onInvalidation")
    }
}
