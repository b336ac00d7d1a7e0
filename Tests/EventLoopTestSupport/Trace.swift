// A record of a run as a line of text that a test can compare: E entry, T beforeTimers, S beforeSources, W beforeWaiting,
// A afterWaiting, X exit. A test adds words of its own in between.

public import EventLoop

public final class Trace: Sendable, CustomStringConvertible {
    private let entries = Locked<[String]>([])

    public init() {}

    public func add(_ entry: String) { entries.withLock { $0.append(entry) } }
    public var list: [String] { entries.withLock { $0 } }
    public var description: String { list.joined(separator: " ") }

    /// The words added since the last call.
    public func take() -> String {
        entries.withLock { list in
            defer { list = [] }
            return list.joined(separator: " ")
        }
    }

    /// Adds an observer of all six activities that records their letters, each with `prefix`.
    @discardableResult
    public func observe(
        _ loop: RunLoop, in mode: RunLoop.Mode = .default, prefix: String = "", order: Int = 0,
        also body: (@Sendable (RunLoop.Activity) -> Void)? = nil
    ) -> RunLoop.Observer {
        let observer = RunLoop.Observer(activities: .all, order: order) { [self] _, activity in
            add(prefix + letter(of: activity))
            body?(activity)
        }
        loop.add(observer, forMode: mode)
        return observer
    }
}

public func letter(of activity: RunLoop.Activity) -> String {
    switch activity {
    case .entry: "E"
    case .beforeTimers: "T"
    case .beforeSources: "S"
    case .beforeWaiting: "W"
    case .afterWaiting: "A"
    case .exit: "X"
    default: "?"
    }
}
