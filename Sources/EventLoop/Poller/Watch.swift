// What the kernel is asked to watch for a source.

/// What a source may be ready for. `broken` is an error or a hang-up: the source is then ready for all that it asked for.
struct Readiness: OptionSet, Sendable {
    /// A byte, because every registration has two; the poller's constants are of C's int.
    private let bits: UInt8
    var rawValue: Int32 { Int32(bits) }
    init(rawValue: Int32) { bits = UInt8(truncatingIfNeeded: rawValue) }

    static let read = Readiness(rawValue: 1)
    static let write = Readiness(rawValue: 2)
    static let closed = Readiness(rawValue: 4)
    static let broken = Readiness(rawValue: 8)
}

enum WatchTrigger: Sendable { case level, edge, oneShot }

struct Watch: Sendable {
    // In this order no room is lost: every registration has one.
    var identity: FileIdentity
    var descriptor: Int32
    var wanted: Readiness
    var trigger: WatchTrigger
    var priority: RunLoop.Priority

    init(descriptor: Int32, wanted: Readiness, trigger: WatchTrigger, priority: RunLoop.Priority, identity: FileIdentity) {
        self.identity = identity
        self.descriptor = descriptor
        self.wanted = wanted
        self.trigger = trigger
        self.priority = priority
    }
}
