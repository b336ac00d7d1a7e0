// What went wrong lately: stalls that the watchdog found, and the library's warnings. The status page shows both.

import EventLoop

/// The newest entries of each kind. Thread-safe.
final class TroubleLog: Sendable {
    struct Stall: Sendable {
        var number: Int
        var loop: String
        var at: RunLoop.Instant
        var stall: RunLoop.Watchdog.Stall
    }

    private struct Entries {
        var stalls: [Stall] = []
        var stallCount = 0
        var warnings: [RunLoop.Warning] = []
        var names: [(name: String, loop: RunLoop)] = []
    }

    private static let kept = 8
    private let entries: Locked<Entries> = Locked(Entries())

    func setLoops(_ named: [(name: String, loop: RunLoop)]) { entries.withLock { $0.names = named } }

    /// Called on the watchdog's thread. Returns a line for the terminal.
    func add(_ stall: RunLoop.Watchdog.Stall) -> String {
        entries.withLock { entries in
            let name = entries.names.first { $0.loop === stall.loop }?.name ?? "a loop"
            entries.stallCount += 1
            entries.stalls.append(Stall(number: entries.stallCount, loop: name, at: .now, stall: stall))
            if entries.stalls.count > TroubleLog.kept { entries.stalls.removeFirst() }
            return TroubleLog.line(name, stall)
        }
    }

    /// The library reports each mistake once. Called on the thread that made it.
    func add(_ warning: RunLoop.Warning) {
        entries.withLock { entries in
            if entries.warnings.count < TroubleLog.kept { entries.warnings.append(warning) }
        }
    }

    /// The first ones.
    var warnings: [RunLoop.Warning] { entries.withLock { $0.warnings } }

    /// Newest first, and how many there were.
    var stalls: (newest: [Stall], count: Int) { entries.withLock { (Array($0.stalls.reversed()), $0.stallCount) } }

    private static func line(_ name: String, _ stall: RunLoop.Watchdog.Stall) -> String {
        let what = stall.label.map { "\(stall.kind.rawValue) \"\($0)\"" } ?? stall.kind.rawValue
        let site = stall.createdAt.map { " from \($0)" } ?? ""
        return "stall: \(name) has been in \(what)\(site) for \(Format.duration(stall.duration)), "
            + "\(Format.duration(stall.processorTime)) of it on a processor"
    }
}
