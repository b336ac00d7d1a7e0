// The modes of a loop that another loop drives.
//
// Lifecycle of the outer set: made by `RunLoop.hosted`, closed by `HostedMode.close`, at the latest when the last reference goes.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// A mode that a host drives, and the set that the host watches.
///
/// Referred to by its loop until the mode is hosted no more, and by the `HostedLoop`, whose `descriptor` must not become another file's
/// number while the host may watch it.
final class HostedMode: @unchecked Sendable {
    // SAFETY: touched on the loop's thread only; the last reference may be released on any.

    let mode: ModeState
    /// -1 after `close`.
    private(set) var descriptor: Int32
    /// The mode is hosted no more.
    var isOver = false

    init(_ mode: ModeState, _ set: OuterSet) { (self.mode, descriptor) = (mode, set.descriptor) }

    deinit { closeSet() }

    func closeSet() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }
}

/// The hosted modes of a loop. Owning thread only.
struct Hosting {
    private(set) var modes: [HostedMode] = []
    /// The owner is outside `step()`, and the loop counts as asleep (as alert, if the host is in a handler).
    var isBetweenSteps = false
    /// How many runs were in progress when `isBetweenSteps` was last set.
    var depth = 0
    /// The run that begins is a step.
    var isStepping = false
    /// The owner is on its way to sleep, and calls out.
    var isSettling = false

    var isEmpty: Bool { modes.isEmpty }

    func contains(_ modeIndex: Int) -> Bool { modes.contains { $0.mode.index == modeIndex } }

    mutating func append(_ hosted: HostedMode) { modes.append(hosted) }
    mutating func remove(_ hosted: HostedMode) { modes.removeAll { $0 === hosted } }

    mutating func takeAll() -> [HostedMode] {
        defer { modes = [] }
        return modes
    }
}
