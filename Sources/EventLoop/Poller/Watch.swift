/// What a source may be ready for. `broken` is an error or a hang-up, which makes it ready for all it asked for; `error` is added without a hang-up.
package struct Readiness: OptionSet, Sendable {
    /// A byte, because every registration has two; the poller's constants are of C's int.
    private let bits: UInt8
    package var rawValue: Int32 { Int32(bits) }
    package init(rawValue: Int32) { bits = UInt8(truncatingIfNeeded: rawValue) }
    package static let read = Readiness(rawValue: 1)
    package static let write = Readiness(rawValue: 2)
    package static let closed = Readiness(rawValue: 4)
    package static let broken = Readiness(rawValue: 8)
    static let priority = Readiness(rawValue: 16)
    static let error = Readiness(rawValue: 32)
    /// An error is all there is: nothing that was asked for, and no hang-up.
    var isErrorAlone: Bool { self == [.broken, .error] }
}

enum WatchTrigger: Sendable { case level, edge, oneShot }

/// What the kernel is asked to watch for a source.
struct Watch: Sendable {
    // In this order, without padding: every registration has one.
    var identity: FileIdentity
    var descriptor: Int32
    var wanted = Readiness.read
    var trigger = WatchTrigger.level
    var priority = RunLoop.Priority.default
}
