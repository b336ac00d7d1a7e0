// What all input sources share. Loop/RunLoop+Sources.swift puts them into modes.

import Synchronization

extension RunLoop {
    /// What all input sources share: validity, a label, the end. Not for subclassing outside the module.
    ///
    /// Thread-safe. A source may be in many modes of many loops.
    public class Source: @unchecked Sendable {
        // SAFETY: stored properties are constants, atomics, or guarded by `state`'s mutex; subclasses say so for theirs.

        public let label: String?
        let site: CreationSite
        let kind: SourceKind
        let rundown = Rundown()
        let state = ForkAwareMutex(SourceState())
        /// The id of the loop whose thread is in the handler, or zero: a handler never runs on two threads at once.
        let servingLoop = Atomic<UInt64>(0)
        let hasWaiters = Atomic<Bool>(false)
        /// How many calls of the handler are inside one another. Touched by the thread of `servingLoop` only.
        final var servingDepth = 0

        init(kind: SourceKind, label: String?, site: CreationSite) {
            self.kind = kind
            self.label = label
            self.site = site
        }

        deinit {
            // A kind without a deinit of its own; its part is gone by now.
            if rundown.isValid { endByLastRelease() }
        }

        /// False once the source was invalidated, or failed by itself. Thread-safe.
        public var isValid: Bool { rundown.isValid }

        /// Why the source became invalid by itself (its descriptor was closed, the kernel refused it); nil otherwise. Says `.badDescriptor` also
        /// when the source was invalidated by hand, but after its descriptor had been closed.
        public var failure: SourceError? { state.withLock { $0.failure } }

        /// Called once, when no call of the handler is in progress or can follow.
        ///
        /// A closure that needs the source takes it as its argument: `onInvalidation { close($0.descriptor) }`. One that captured the source would
        /// keep it alive, and the source the closure, until somebody invalidates it.
        ///
        /// On the owning thread, after the kernel has let go of the descriptor in every loop and mode; at once, on the caller's
        /// thread, if the source is invalid and finished already, or was never added. Several calls add up, in order. Thread-safe.
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

        /// What the kernel is to watch for this source; nil for one that threads signal by hand.
        var watch: Watch? { nil }

        /// Serves the source: `ready` says what for. On the owning thread, with the source still a member of the running mode. False when
        /// there was nothing to call the handler for.
        func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            preconditionFailure("a source that the kernel signals says how it is served")
        }

        /// Whether there is a message to serve. Any thread, also under a loop's lock: it looks at atomics.
        var hasMessage: Bool { false }

        /// The number of the latest message.
        var lastMessage: UInt64 { 0 }

        /// Hands out one message whose number is not above `last`; false when there is none. `onlyOne`: no more will be asked for. On the
        /// owning thread, which has claimed the source (`servingLoop`).
        func serveMessage(upTo last: UInt64, onlyOne: Bool) -> Bool { /* DOES CALLOUT */
            preconditionFailure("a source that holds messages says how they are served")
        }

        /// Called when the outermost step that serves messages is over, still with the claim.
        func returnMessages() { /* DOES CALLOUT */  }

        /// Called after the source has gained a mode of a loop.
        func didJoin(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */  }

        /// Called after the source has lost a mode of a loop.
        func didLeave(_ loop: RunLoop, _ mode: Mode) { /* DOES CALLOUT */  }

        /// Called once, by whoever invalidated the source and on that thread, before the loops hear of it. Not called by the last release.
        func didInvalidate() { /* DOES CALLOUT */  }

        /// Lets go of the handlers.
        func releaseHandlers() {}

        /// For descriptions: the type in a word or two, and what waits in the source.
        var typeDescription: String { "source" }

        // MARK: The end

        /// Runs what waits for the end. For the one whom `rundown` told that nothing uses the source any more.
        final func finish() { /* DOES CALLOUT */
            releaseHandlers()
            callInvalidationBodies()
        }

        /// The last release of a source anywhere counts as its invalidation. For the deinit of each kind, while its own part is there: the
        /// closures are handed the source.
        final func endByLastRelease() { /* DOES CALLOUT */
            // If it was invalidated before, it was finished too: what uses a source holds it.
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

    var isWatched: Bool {
        switch self {
        case .custom, .messages: false
        case .watched, .descriptor: true
        }
    }
}

/// Every source, as a protocol, so that a member can name the kind of source that it is called on.
public protocol _SourceOfAKind: RunLoop.Source {}
extension RunLoop.Source: _SourceOfAKind {}

extension _SourceOfAKind {
    /// Called once, with the source, when no call of its handler is in progress or can follow: the place to close a descriptor.
    ///
    /// ```
    /// source.onInvalidation { close($0.descriptor) }
    /// ```
    ///
    /// On the owning thread, after the kernel has let go of the descriptor in every loop and mode; at once, on the caller's
    /// thread, if the source is invalid and finished already, or was never added. When the source is invalid because its last reference
    /// has gone, the closure may use it and not keep it. Several calls add up, in order. Thread-safe.
    public func onInvalidation(_ body: @escaping @Sendable (Self) -> Void) { /* DOES CALLOUT */
        // It is called with this source.
        addInvalidation { body(unsafeDowncast($0, to: Self.self)) }
    }
}

/// What the lock of a source guards.
struct SourceState: Sendable {
    /// One for each loop that the source is in, or is being added to. Most sources are in one.
    private(set) var first: SourceMembership?
    private(set) var others: [SourceMembership]?
    private var rare: Rare?
    var isFinished = false

    /// What few sources have.
    private final class Rare: @unchecked Sendable {
        // SAFETY: guarded by the source's lock, with the state that holds it.
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

    /// Notes a loop that found the handler running on another thread.
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

    /// Lends each.
    @inline(__always)
    func forEachMembership(_ body: (SourceMembership) -> Void) {
        if first != nil { Unmanaged.passUnretained(first.unsafelyUnwrapped)._withUnsafeGuaranteedRef(body) }
        if others != nil { others!.forEachUnretained(body) }
    }
}

/// A source in one loop. Made by the first `add`, dead when the last mode is left, and then replaced by a new one.
///
/// Lifecycle: the source and the loop hold it; each membership is one use of the source's rundown, ended on the loop's thread
/// when the poller has let go of the descriptor.
final class SourceMembership: @unchecked Sendable {
    // SAFETY: constants, what the loop's lock guards, and what its thread owns, in this order.

    let source: RunLoop.Source
    let loop: RunLoop

    // SAFETY: guarded by the loop's lock.
    @exclusivity(unchecked) var modes = ModeSet()
    /// The modes whose list of signaled sources, or of ports with messages, has it.
    @exclusivity(unchecked) var queuedModes = ModeSet()
    /// Where the loop's queue of changes has one of it. Before the single bytes, so that these share a word.
    @exclusivity(unchecked) var changePlace = LinkedQueue<Never>.noPlace
    /// Where the loop's list of sources holds it.
    @exclusivity(unchecked) var index: Int32 = 0
    @exclusivity(unchecked) var isCommon = false
    @exclusivity(unchecked) var isDead = false

    // SAFETY: touched only on the loop's thread.

    /// More than one registration: see RunLoop+Parking.swift.
    @exclusivity(unchecked) var isInSeveralBases = false
    /// The membership is dead, and its use ends when the calls in progress have returned.
    @exclusivity(unchecked) var endsAfterCalls = false
    /// How many calls of the handler are on this thread's stack.
    @exclusivity(unchecked) var callsInProgress: Int32 = 0
    /// How often it was served in the epoch of modes that is named.
    @exclusivity(unchecked) var servings: UInt32 = 0
    @exclusivity(unchecked) var countedInEpoch: UInt32 = 0
    /// In the same room, because no base has a port: the step in which it had its last turn to hand out messages.
    var messageStep: UInt64 {
        get { UInt64(countedInEpoch) << 32 | UInt64(servings) }
        set { (countedInEpoch, servings) = (UInt32(truncatingIfNeeded: newValue >> 32), UInt32(truncatingIfNeeded: newValue)) }
    }
    /// The first of its places in bases, which are linked through themselves and tagged with their modes' indices.
    @exclusivity(unchecked) private var firstRegistration: RegistrationPointer?
    /// The modes whose bases it has left until they run.
    @exclusivity(unchecked) var parkedModes = ModeSet()

    init(source: RunLoop.Source, loop: RunLoop) {
        self.source = source
        self.loop = loop
    }

    // MARK: Places in bases

    var anyRegistration: RegistrationPointer? { firstRegistration }

    func registration(inMode index: Int) -> RegistrationPointer? {
        var next = firstRegistration
        while let registration = next, Int(registration.pointee.tag) != index { next = registration.pointee.nextOfOwner }  // ends: a list
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
        while let registration = next {  // ends: the list has an end
            all.append(registration)
            next = registration.pointee.nextOfOwner
        }
        return all
    }
}
