// The base class of all input sources. RunLoop+Sources.swift adds them to modes.

import Synchronization

extension RunLoop {
    /// The base class of all input sources: validity, label, invalidation. Not for subclassing outside the module.
    ///
    /// Thread-safe. A source may be in many modes of many loops.
    public class Source: @unchecked Sendable {
        // SAFETY: stored properties are constants, atomics, or guarded by the mutex of `state`. Subclasses say what guards theirs.

        public let label: String?
        let site: CreationSite
        let kind: SourceKind
        let rundown = Rundown()
        let state = ForkAwareMutex(SourceState())
        /// The id of the loop whose thread is in the handler, or zero. A handler never runs on two threads at once.
        let servingLoop = Atomic<UInt64>(0)
        /// Whether other loops wait for the handler to return.
        let hasWaiters = Atomic<Bool>(false)
        /// How deeply calls of the handler are nested. Only the thread of `servingLoop` accesses it.
        final var servingDepth = 0

        init(kind: SourceKind, label: String?, site: CreationSite) {
            self.kind = kind
            self.label = label
            self.site = site
        }

        deinit {
            // For a subclass without a deinit of its own. The subclass's stored properties are gone by now.
            if rundown.isValid { endByLastRelease() }
        }

        /// False after the source was invalidated, or failed by itself. Thread-safe.
        public var isValid: Bool { rundown.isValid }

        /// Why the source failed by itself (its descriptor was closed, the kernel refused it); nil if it did not. Also `.badDescriptor` if
        /// the source was invalidated by hand after its descriptor had been closed.
        public var failure: SourceError? { state.withLock { $0.failure } }

        /// Calls `body` once, when no call of the handler is in progress and none can follow.
        ///
        /// If the closure needs the source, use the form that passes it: `onInvalidation { close($0.descriptor) }`. A closure that captures
        /// the source creates a reference cycle, which lasts until the source is invalidated.
        ///
        /// Runs on the owning thread, after the kernel has stopped watching the descriptor in every loop and mode. Runs at once on the
        /// caller's thread if the source is already invalid and finished, or was never added. If this is called several times, all closures
        /// run, in order. Thread-safe.
        public func onInvalidation(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
            addInvalidation { _ in body() }
        }

        final func addInvalidation(_ body: @escaping @Sendable (Source) -> Void) { /* DOES CALLOUT */
            let isFinished = state.withLock { state in
                if !state.isFinished { state.addInvalidation(body) }
                return state.isFinished
            }
            if isFinished { body(self) }
        }

        // MARK: For subclasses

        /// What the kernel watches for this source; nil if it watches nothing.
        var watch: Watch? { nil }

        /// Calls the handler for what `ready` says. Returns false if there was nothing to call it for. On the owning thread, while the
        /// source is in the mode that runs.
        func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            preconditionFailure("a source that the kernel makes ready must override serve(_:)")
        }

        /// Whether a message waits. Thread-safe. Reads only atomics, so it may be called under a loop's lock.
        var hasMessage: Bool { false }

        /// The number of the latest message.
        var lastMessage: UInt64 { 0 }

        /// Delivers one message whose number is at most `last`. Returns false if there is none. `onlyOne`: the caller asks for no further
        /// message in this step. On the owning thread, which has claimed the source (`servingLoop`).
        func serveMessage(upTo last: UInt64, onlyOne: Bool) -> Bool { /* DOES CALLOUT */
            preconditionFailure("a source with messages must override serveMessage(upTo:onlyOne:)")
        }

        /// Called at the end of the outermost step that serves messages, before the claim ends. Returns undelivered messages to the queue.
        func returnMessages() { /* DOES CALLOUT */  }

        /// Called after the source was added to a mode of a loop.
        func didJoin(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */  }

        /// Called after the source was removed from a mode of a loop.
        func didLeave(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */  }

        /// Called once, on the thread that invalidates the source, before the loops remove it. Not called if the last release invalidates
        /// the source.
        func didInvalidate() { /* DOES CALLOUT */  }

        /// Releases the handlers.
        func releaseHandlers() {}

        /// For descriptions: the type in a word or two, and what waits in the source.
        var typeDescription: String { "source" }

        // MARK: The end

        /// Releases the handlers and calls the `onInvalidation` closures. Only the caller that ended the last use of `rundown` may call it.
        final func finish() { /* DOES CALLOUT */
            releaseHandlers()
            callInvalidationBodies()
        }

        /// The last release of a valid source invalidates it. The deinit of each subclass calls this, because the closures receive the
        /// source while the subclass's stored properties still exist.
        final func endByLastRelease() { /* DOES CALLOUT */
            // A source that was invalidated earlier is finished too, because whatever uses a source retains it.
            guard rundown.invalidate().first else { return }
            releaseHandlers()
            callInvalidationBodies()
        }

        private func callInvalidationBodies() { /* DOES CALLOUT */
            let bodies = state.withLockUnlessInherited { state in
                state.isFinished = true
                return state.takeInvalidations()
            }
            for body in bodies ?? [] { body(self) }
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
    /// The same, in the class `DescriptorSource`. It is served a million times a second, so its method is called without dynamic dispatch.
    case descriptor
    /// The kernel watches a descriptor, and the loop asks before each poll when it is to be called anyway. The class is `GuestLoop`.
    case guest

    var isWatched: Bool {
        switch self {
        case .custom, .messages: false
        case .watched, .descriptor, .guest: true
        }
    }
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
    private(set) var others: [SourceMembership]?
    private var rare: Rare?
    var isFinished = false

    /// State that few sources need.
    private final class Rare: @unchecked Sendable {
        // SAFETY: guarded by the source's lock, like the state that refers to it.
        var onInvalidation: [@Sendable (RunLoop.Source) -> Void] = []
        var failure: RunLoop.SourceError?
        var waitingToServe: [SourceMembership] = []
    }

    private mutating func makeRare() -> Rare {
        if let rare { return rare }
        let made = Rare()
        rare = made
        return made
    }

    var failure: RunLoop.SourceError? {
        get { rare?.failure }
        set { makeRare().failure = newValue }
    }

    mutating func addInvalidation(_ body: @escaping @Sendable (RunLoop.Source) -> Void) { makeRare().onInvalidation.append(body) }

    mutating func takeInvalidations() -> [@Sendable (RunLoop.Source) -> Void] {
        defer { rare?.onInvalidation = [] }
        return rare?.onInvalidation ?? []
    }

    /// Adds a loop to those that wait for the handler to return on another thread.
    mutating func wait(_ membership: SourceMembership) {
        let rare = makeRare()
        if !rare.waitingToServe.contains(where: { $0 === membership }) { rare.waitingToServe.append(membership) }
    }

    mutating func takeWaiting() -> [SourceMembership] {
        defer { rare?.waitingToServe = [] }
        return rare?.waitingToServe ?? []
    }

    var memberships: [SourceMembership] { first.map { [$0] + (others ?? []) } ?? [] }

    func membership(of loop: RunLoop) -> SourceMembership? {
        if let first, first.loop === loop { return first }
        return others?.first { $0.loop === loop }
    }

    mutating func add(_ membership: SourceMembership) {
        if first == nil { first = membership } else { others = (others ?? []) + [membership] }
    }

    mutating func remove(_ membership: SourceMembership) {
        let left = memberships.filter { $0 !== membership }
        first = left.first
        others = left.count > 1 ? Array(left.dropFirst()) : nil
    }

    /// Calls `body` with each membership, unretained.
    @inline(__always)
    func forEachMembership(_ body: (SourceMembership) -> Void) {
        if first != nil { Unmanaged.passUnretained(first.unsafelyUnwrapped)._withUnsafeGuaranteedRef(body) }
        if others != nil { others!.forEachUnretained(body) }
    }
}

/// A source in one loop. The first `add` creates it, and it is dead when the source has left the loop's last mode. A later `add` creates a
/// new one.
///
/// Lifecycle: the source and the loop retain it. Each membership is one use of the source's rundown. The use ends on the loop's thread,
/// after the poller has stopped watching the descriptor.
final class SourceMembership: @unchecked Sendable {
    // SAFETY: constants, then properties that the loop's lock guards, then properties that the loop's thread owns.

    let source: RunLoop.Source
    let loop: RunLoop

    // SAFETY: guarded by the loop's lock.
    @exclusivity(unchecked) var modes = ModeSet()
    /// The modes that have the source in their list of signaled sources, or of ports with messages.
    @exclusivity(unchecked) var queuedModes = ModeSet()
    /// The place of its change in the loop's queue of changes. Declared before the single bytes, so that they share a word.
    @exclusivity(unchecked) var changePlace = LinkedQueue<Never>.noPlace
    /// Its index in the loop's bag of sources.
    @exclusivity(unchecked) var index: Int32 = 0
    @exclusivity(unchecked) var isCommon = false
    @exclusivity(unchecked) var isDead = false

    // SAFETY: accessed only on the loop's thread.

    /// It has more than one registration. See RunLoop+Parking.swift.
    @exclusivity(unchecked) var isInSeveralBases = false
    /// The membership is dead, and its use ends after the calls in progress.
    @exclusivity(unchecked) var endsAfterCalls = false
    /// How many calls of the handler are on this thread's stack.
    @exclusivity(unchecked) var callsInProgress: Int32 = 0
    /// How many times it was served in the epoch `countedInEpoch`.
    @exclusivity(unchecked) var servings: UInt32 = 0
    @exclusivity(unchecked) var countedInEpoch: UInt32 = 0
    /// The step in which it last had its turn to deliver messages. Shares storage with `servings`, because a port is never registered on a
    /// base.
    var messageStep: UInt64 {
        get { UInt64(countedInEpoch) << 32 | UInt64(servings) }
        set { (countedInEpoch, servings) = (UInt32(truncatingIfNeeded: newValue >> 32), UInt32(truncatingIfNeeded: newValue)) }
    }
    /// The first of its registrations, which form a linked list. The tag of a registration is the index of its mode.
    @exclusivity(unchecked) private var firstRegistration: RegistrationPointer?
    /// The modes from whose bases the source is removed until they run.
    @exclusivity(unchecked) var parkedModes = ModeSet()

    init(source: RunLoop.Source, loop: RunLoop) {
        self.source = source
        self.loop = loop
    }

    // MARK: Registrations

    var anyRegistration: RegistrationPointer? { firstRegistration }

    func registration(inMode index: Int) -> RegistrationPointer? {
        var next = firstRegistration
        // Ends: the list is finite.
        while let registration = next, Int(registration.pointee.tag) != index { next = registration.pointee.nextOfOwner }
        return next
    }

    func insert(_ registration: RegistrationPointer) {
        registration.pointee.nextOfOwner = firstRegistration
        firstRegistration = registration
        isInSeveralBases = registration.pointee.nextOfOwner != nil
    }

    func takeRegistration(inMode index: Int) -> RegistrationPointer? {
        let all = registrations
        guard let found = all.first(where: { Int($0.pointee.tag) == index }) else { return nil }
        firstRegistration = nil
        for registration in all.reversed() where registration != found { insert(registration) }
        isInSeveralBases = all.count > 2
        return found
    }

    var registrations: [RegistrationPointer] {
        var all: [RegistrationPointer] = []
        var next = firstRegistration
        while let registration = next {  // ends: the list is finite
            all.append(registration)
            next = registration.pointee.nextOfOwner
        }
        return all
    }
}
