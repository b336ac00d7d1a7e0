internal import CPlatform
import EventLoopLibC

/// A source's registration in one base: two cache lines, and libevent's own two behind them. The first is read when a source comes or goes. The
/// second has what serving needs, beside the event, so that an event of the kernel touches three lines of this memory (decision 43). Lifecycle: a
/// watched source allocates one together with its core, for the first base (`takeRegistration`), and frees both. Each further base allocates one
/// (`Poller.register`) and frees it (`unregister`) after the batch in progress, which may be serving its source (`retired`).
struct Registration: ~Copyable {
    // SAFETY: but for the core, the registration belongs to the thread of its poller's loop.
    // MARK: Read when a source comes or goes
    /// The membership that the poller's owner registered; opaque down here.
    fileprivate(set) var owner = UnsafeRawPointer(bitPattern: 16)!
    /// The owner's next registration, in another base. The owner's to use.
    var nextOfOwner: UnsafeMutablePointer<Registration>?
    /// The registrations of the same descriptor number in the same base, linked in both directions. The descriptor table's to use.
    var nextOnDescriptor: UnsafeMutablePointer<Registration>?
    var previousOnDescriptor: UnsafeMutablePointer<Registration>?
    var watch = Watch(identity: FileIdentity(stat()), descriptor: -1, wanted: [])
    /// What the source was not called for because another loop was in its handler, if the kernel may not report it again.
    var kept: Readiness = []
    /// What the owner knows the base by.
    fileprivate(set) var tag: Int32 = 0
    /// The descriptor of the registration's own small poller, or -1.
    var nestedPoller: Int32 = -1
    /// libevent holds the event.
    var isAdded = false
    /// The nested poller reports the next change only, because an error alone makes the descriptor ready. See Poller+Errors.swift.
    var isMuted = false

    // MARK: Touched by every event
    /// The source's own, if this is its first registration. Begins the second line.
    var ownCore: SourceCore
    var readyIndex: UInt32 = 0
    fileprivate(set) var collector = UnsafeMutablePointer<Collector>(bitPattern: 16)!
    /// When the registration was served last, or was ready when it was connected, in the poller's count of servings, which wraps around.
    var servedAt: UInt32 = 0
    /// When its descriptor is looked at next. See Poller+Batches.swift.
    var comparison = ComparisonCountdown()
    /// `pending` in the lower byte, `flags` in the upper one, so that one instruction reads both.
    private var collected: UInt16 = 0

    /// What was collected and not served yet; not empty exactly while the registration stands in the ready list.
    var pending: Readiness {
        @inline(__always) get { Readiness(rawValue: Int32(collected & 0xFF)) }
        @inline(__always) set { collected = collected & 0xFF00 | UInt16(truncatingIfNeeded: newValue.rawValue) }
    }
    fileprivate var flags: Flags {
        @inline(__always) get { Flags(rawValue: UInt8(truncatingIfNeeded: collected >> 8)) }
        set { collected = collected & 0xFF | UInt16(newValue.rawValue) << 8 }
    }
    /// Not in the ready list, and a report needs no second thought.
    var isPlainAndIdle: Bool {
        @inline(__always) get { collected & (0xFF | UInt16(Flags.isPlain.rawValue) << 8) == UInt16(Flags.isPlain.rawValue) << 8 }
    }

    fileprivate struct Flags: OptionSet {
        let rawValue: UInt8
        static let isPlain = Flags(rawValue: 1 << 0)
        static let isInSeveralBases = Flags(rawValue: 1 << 1)
        static let isSeparate = Flags(rawValue: 1 << 2)
    }

    /// What libevent reports needs no second thought: no nested poller, and the event stays added.
    var isPlain: Bool {
        @inline(__always) get { flags.contains(.isPlain) }
        set { flags = newValue ? flags.union(.isPlain) : flags.subtracting(.isPlain) }
    }
    /// The kernel reports the readiness again as long as it lasts.
    var isReportedAgain: Bool { watch.trigger == .level && !isMuted }
    /// The owner has registrations in other bases too.
    var isInSeveralBases: Bool {
        @inline(__always) get { flags.contains(.isInSeveralBases) }
        set { flags = newValue ? flags.union(.isInSeveralBases) : flags.subtracting(.isInSeveralBases) }
    }

    /// Nobody reads the owner, the collector and the watch before `take`.
    private init(traits: SourceCore.Traits) { ownCore = SourceCore(traits: traits) }
}

/// Counts servings down to those at which the loop checks to which file the descriptor belongs: the first, second, fourth … and every 1,024th.
struct ComparisonCountdown: BitwiseCopyable {
    /// How many are left in the lower 12 bits; in the upper ones the exponent of the number that follows.
    private var word: UInt16 = 1

    /// Counts a serving. True if it is the last before a check.
    @inline(__always) mutating func countDown() -> Bool {
        word &-= 1
        return word & 0xFFF == 0
    }

    /// Whether the source has been served four times: one that lives shorter is worth no second system call.
    var isPastFirstServings: Bool { word >> 12 >= 3 }
    /// Has the next serving be the last before a check.
    mutating func checkNext() { word = word & 0xF000 | 1 }

    /// Begins the next, longer countdown.
    mutating func restart() {
        let exponent = word >> 12
        word = min(exponent + 1, 10) << 12 | 1 << exponent
    }
}

typealias RegistrationPointer = UnsafeMutablePointer<Registration>

extension Registration {
    /// The size of a cache line. A few processors have larger ones.
    static let lineSize = 64
    static let coreOffset = lineSize

    /// Allocates the core of a source in a registration that no base uses yet. The caller frees it with `free`.
    static func allocate(traits: SourceCore.Traits) -> RegistrationPointer {
        cplatform_allocate_lines(EventRecord<Registration>.byteCount)
            .initializeMemory(as: Registration.self, to: Registration(traits: traits))
    }

    /// A registration of a source in a base: the one around the source's core, or one of its own if that is in use.
    static func take(
        for core: SourceCorePointer, in poller: Poller, owner: UnsafeRawPointer, watch: Watch, tag: Int32
    ) -> RegistrationPointer {
        let own = core.takeRegistration()
        let registration = own ?? allocate(traits: [])
        if own == nil { registration.pointee.ownCore.otherCore = core }
        registration.pointee.owner = owner
        registration.pointee.collector = poller.collector
        registration.pointee.watch = watch
        registration.pointee.kept = []
        registration.pointee.tag = tag
        registration.pointee.nextOfOwner = nil
        registration.pointee.nestedPoller = -1
        registration.pointee.comparison = ComparisonCountdown()
        registration.pointee.servedAt = 0
        registration.pointee.pending = []
        registration.pointee.flags = own == nil ? .isSeparate : []
        return registration
    }
}

extension RegistrationPointer {
    /// The registration is its source's own, and the only one: serving does not read the first line.
    @inline(__always) var isOwnAndOnly: Bool { pointee.flags.isDisjoint(with: [.isSeparate, .isInSeveralBases]) }
    var poller: Borrowed<Poller> { pointee.collector.pointee.poller }
    /// The core of the registered source.
    @inline(__always)
    var source: SourceCorePointer { pointee.flags.contains(.isSeparate) ? pointee.ownCore.otherCore.unsafelyUnwrapped : core }

    /// The core that is in this registration; only a source's own registration has one that is in use.
    @inline(__always) var core: SourceCorePointer {
        (UnsafeMutableRawPointer(self) + Registration.coreOffset).assumingMemoryBound(to: SourceCore.self)
    }

    /// Frees a registration that has left its base, or leaves it to its source.
    func giveBack() { if pointee.flags.contains(.isSeparate) { free() } else { core.giveRegistrationBack() } }

    func free() {
        deinitialize(count: 1)
        cplatform_free_lines(self, EventRecord<Registration>.byteCount)
    }
}
