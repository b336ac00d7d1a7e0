import Synchronization

/// The state of a source that every call of its handler needs. It shares one cache line with what its registration needs for that (decision 43), so
/// that serving does not touch the source object. Lifecycle: part of a `Registration` if the kernel watches the source, otherwise an allocation of
/// its own (`make`). The source's deinit frees it.
struct SourceCore: ~Copyable {
    // SAFETY: atomics, then state of one thread at a time, as each says.
    /// The handler's two words. They belong to the source's class, which binds the memory at `handlerMemory`.
    fileprivate var handler: (UInt, UInt) = (0, 0)
    /// The id of the loop whose thread is in the handler, or zero. A handler never runs on two threads at once.
    let servingLoop = Atomic<UInt64>(0)
    /// The source object. Written once, by the initializer of the source; nobody reads it before.
    var object = UnsafeRawPointer(bitPattern: 16)!
    let rundown = Rundown()
    /// How deeply calls of the handler are nested. Only the thread of `servingLoop` accesses it.
    var servingDepth: UInt16 = 0
    /// Whether other loops wait for the handler to return.
    let hasWaiters = Atomic<Bool>(false)
    /// What a descriptor source reports, in the bits of its `Events`.
    let wanted = Atomic<UInt8>(0)
    /// False for a one-shot descriptor source that has fired, until `rearm()`.
    let isArmed = Atomic<Bool>(true)
    /// A base uses the registration around this core. The registering thread sets and clears it.
    fileprivate let isRegistered = Atomic<Bool>(false)
    /// Constants, from the first addition on.
    var traits: Traits
    /// Memberships of the serving loop have died; their uses end after the call in progress. Only the thread of `servingLoop` accesses it.
    var hasEndingUses = false

    struct Traits: OptionSet {
        let rawValue: UInt8
        /// The kernel watches the source: the core is part of a registration.
        static let isWatched = Traits(rawValue: 1 << 0)
        /// The object is a `DescriptorSource`, and its handler is in this core.
        static let isDescriptorSource = Traits(rawValue: 1 << 1)
        /// It fires once, then not until `rearm()`.
        static let isOneShot = Traits(rawValue: 1 << 2)
        /// It becomes invalid when its loop ends, although others than the loop retain it.
        static let endsWithLoop = Traits(rawValue: 1 << 3)
        /// Only the process that made it may read its descriptor.
        static let isOfOneProcess = Traits(rawValue: 1 << 4)
        /// It has a closure of the program for each mode that it joins.
        static let callsOutWhenJoining = Traits(rawValue: 1 << 5)
        /// The same for each mode that it leaves.
        static let callsOutWhenLeaving = Traits(rawValue: 1 << 6)
        /// Each call takes one of perhaps many: a listener.
        static let mayHaveMore = Traits(rawValue: 1 << 7)
    }

    init(traits: Traits) { self.traits = traits }

    /// The core of this registration's source, if that is in another registration. Stored in place of a handler, which this core does not have then.
    var otherCore: SourceCorePointer? {
        @inline(__always) get { SourceCorePointer(bitPattern: handler.0) }
        set { handler = (UInt(bitPattern: newValue), 0) }
    }
}

typealias SourceCorePointer = UnsafeMutablePointer<SourceCore>

extension SourceCorePointer {
    /// Makes the core of a source, in an unused registration if the kernel watches it. The caller sets the object first. The core is freed by `free`.
    static func make(traits: SourceCore.Traits) -> SourceCorePointer {
        if traits.contains(.isWatched) { return Registration.allocate(traits: traits).core }
        let core = SourceCorePointer.allocate(capacity: 1)
        core.initialize(to: SourceCore(traits: traits))
        return core
    }

    /// Frees the core. The class has released its handler.
    func free() {
        assert(!pointee.isRegistered.load(ordering: .relaxed), "a source ends after its registrations")
        assert(pointee.handler.0 == 0, "the class of a source releases its handler first")
        if pointee.traits.contains(.isWatched) {
            registrationAround.free()
        } else {
            deinitialize(count: 1)
            deallocate()
        }
    }

    /// The registration that has this core in it; only of a watched source.
    var registrationAround: RegistrationPointer {
        (UnsafeMutableRawPointer(self) - Registration.coreOffset).assumingMemoryBound(to: Registration.self)
    }

    /// Takes the registration around the core for a base. Nil if a base uses it already, or if the source is not watched.
    func takeRegistration() -> RegistrationPointer? {
        guard pointee.traits.contains(.isWatched), !pointee.isRegistered.exchange(true, ordering: .acquiring) else { return nil }
        return registrationAround
    }

    /// After the last access to the registration around the core.
    func giveRegistrationBack() { pointee.isRegistered.store(false, ordering: .releasing) }
    /// The memory of the handler's two words.
    @inline(__always) var handlerMemory: UnsafeMutableRawPointer { UnsafeMutableRawPointer(self) }
    var hasHandler: Bool { pointee.handler.0 != 0 }
    /// After the class has released the handler.
    func forgetHandler() { pointee.handler = (0, 0) }

    /// Claims the handler for a loop's thread. False if another loop's thread is in it.
    @inline(__always) func claimServing(for id: UInt64) -> Bool {
        let (isClaimed, owner) = pointee.servingLoop.compareExchange(expected: 0, desired: id, ordering: .sequentiallyConsistent)
        // A nested run of the same thread may call the handler again.
        if _slowPath(!isClaimed) && owner != id { return false }
        pointee.servingDepth += 1
        return true
    }
}
