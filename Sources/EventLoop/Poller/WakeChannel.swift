internal import CPlatform
internal import EventLoopLibC

/// Wakes a sleeping loop: an eventfd, or a pipe where there is none. Every base of the loop watches it. Thread-safe; `wake` also in signal handlers.
/// A child process shares it with its parent: there it is neither written to nor read (decision 24). Lifecycle: made with the loop, closed with the
/// `RunLoop` object, not with its thread: a late `stop` or `wakeUp` must not write into another file.
struct WakeChannel: ~Copyable, Sendable {
    let readEnd: Int32
    let writeEnd: Int32
    private let isOwner: Bool
    private let mark = ProcessMark()

    /// Nil with errno set when there are no descriptors left.
    init?() {
        var ends: [Int32] = [-1, -1]
        if cplatform_make_wake_channel(&ends) != 0 { return nil }
        (readEnd, writeEnd, isOwner) = (ends[0], ends[1], true)
    }

    /// The same descriptors, for a loop that never sleeps. `other` lives longer.
    init(sharing other: borrowing WakeChannel) { (readEnd, writeEnd, isOwner) = (other.readEnd, other.writeEnd, false) }

    /// As `init`, at a moment at which no other thread takes what is free in order to count it.
    static func madeBetweenChecks() -> WakeChannel? {
        cplatform_hold_room_checks()
        defer { cplatform_release_room_checks() }
        return WakeChannel()
    }

    deinit {
        if !isOwner { return }
        cplatform_close(readEnd)
        if writeEnd != readEnd { cplatform_close(writeEnd) }
    }

    /// Async-signal-safe: one `write`, and errno is kept.
    func wake() {
        guard mark.isOurs else { return }
        withUnsafeBytes(of: (readEnd, writeEnd)) { cplatform_wake($0.bindMemory(to: Int32.self).baseAddress) }
    }

    /// Takes back every wake-up there was, for a channel that is watched as a level. False, and nothing taken, in a child.
    @discardableResult
    func drain() -> Bool {
        if mark.isOurs { readReports(of: readEnd) }
        return mark.isOurs
    }
}

/// Reads all that a channel, or a timer of the kernel, has to report, so that the descriptor is not readable any more.
func readReports(of descriptor: Int32) {
    var bytes: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
    // Ends: an eventfd or a timer is empty after one read, and a pipe has an end; a writer that goes on writing does so once for each taking.
    while withUnsafeMutableBytes(of: &bytes, { read(descriptor, $0.baseAddress, $0.count) }) == MemoryLayout.size(ofValue: bytes) {}
}
