/// A source in one loop (docs/decisions/0013-memberships.md), from the first `add` until the source has left the loop's last mode.
///
/// Lifecycle: the source and the loop retain it. It is a use of the source's rundown, which ends on the loop's thread after the poller's watch.
final class SourceMembership: @unchecked Sendable {
    // SAFETY: constants, then what the loop's lock guards (`locked`), then what its thread owns (`owned`).

    let source: RunLoop.Source
    let loop: RunLoop

    // SAFETY: read and written under the loop's lock only.
    @exclusivity(unchecked) var locked = Locked()
    // SAFETY: accessed only on the loop's thread.
    @exclusivity(unchecked) var owned = Owned()

    struct Locked: ~Copyable {
        var modes = ModeSet()
        /// The modes that have the source in their list of signaled sources, or of ports with messages.
        var queuedModes = ModeSet()
        /// The index of its change in the loop's queue of changes. Declared before the single bytes, so that they share a word.
        var changeIndex = LinkedQueue<Never>.noIndex
        /// Its index in the loop's bag of sources.
        var index: Int32 = 0
        var isCommon = false
        var isDead = false
        /// Whether the owner may have it on a base: it has taken the change with which the membership joined, or has found it in the list.
        var isKnownToOwner = false
    }

    struct Owned: ~Copyable {
        /// How many times it was served in the phase `countedInPhase` of `ModeHistory`.
        var servings: UInt32 = 0
        var countedInPhase: UInt32 = 0
        /// The step in which a port last had its turn to deliver messages.
        var messageStep: UInt64 = 0
        /// The first of its registrations, which form a linked list. The tag of a registration is the index of its mode.
        fileprivate var firstRegistration: RegistrationPointer?
        /// The modes from whose bases the source is removed until they run.
        var parkedModes = ModeSet()
    }

    init(source: RunLoop.Source, loop: RunLoop) { (self.source, self.loop) = (source, loop) }

    // MARK: Registrations
    var anyRegistration: RegistrationPointer? { owned.firstRegistration }
    /// See Parking.swift. Each registration says so too.
    var isInSeveralBases: Bool { owned.firstRegistration?.pointee.nextOfOwner != nil }

    func registration(inMode index: Int) -> RegistrationPointer? {
        var next = owned.firstRegistration
        while let other = next, Int(other.pointee.tag) != index { next = other.pointee.nextOfOwner }  // ends: the list is finite
        return next
    }

    func insert(_ registration: RegistrationPointer) {
        registration.pointee.nextOfOwner = owned.firstRegistration
        owned.firstRegistration = registration
        markThoseInSeveralBases()
    }

    func takeRegistration(inMode index: Int) -> RegistrationPointer? {
        guard let taken = registration(inMode: index) else { return nil }
        let next = taken.pointee.nextOfOwner
        if taken == owned.firstRegistration { owned.firstRegistration = next }
        forEachRegistration { if $0.pointee.nextOfOwner == taken { $0.pointee.nextOfOwner = next } }
        markThoseInSeveralBases()
        return taken
    }

    /// Servings of a source that has more than one registration are counted.
    private func markThoseInSeveralBases() { forEachRegistration { $0.pointee.isInSeveralBases = isInSeveralBases } }

    @inline(__always) func forEachRegistration(_ body: (RegistrationPointer) -> Void) {
        var next = owned.firstRegistration
        while let registration = next {  // ends: the list is finite
            next = registration.pointee.nextOfOwner
            body(registration)
        }
    }
}
