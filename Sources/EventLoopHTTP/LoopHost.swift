// What a server has for the connections of one loop.
//
// Lifecycle: made with the server. Its timers are made when they are first needed; the loop and the server's end invalidate them.

#if HTTP

internal import EventLoopLibC
internal import EventLoop
import Synchronization

final class LoopHost: @unchecked Sendable {
    // SAFETY: constants, what a lock guards, and what only the loop's thread uses.

    let loop: RunLoop
    let mode: RunLoop.Mode
    let granularity: Duration
    private let registry = Mutex<[HTTPConnection]>([])
    private let timers = Mutex<[RunLoop.Timer]>([])

    // SAFETY: the loop's thread.
    private lazy var deadlines: RunLoop.Timer = makeTimer("timeouts of an HTTP server") { $0.checkDeadlines() }
    private var nextDeadline = RunLoop.Instant.distantFuture
    private lazy var watch: RunLoop.Timer = makeTimer("clients of an HTTP server") { $0.watchClients() }
    private var isWatching = false
    /// Handlers run for these, and nobody watches the clients yet.
    private var unwatched: [HTTPConnection] = []
    private var dateField = DateField()

    /// A handler that takes longer has its client watched.
    static var watchDelay: Duration { .milliseconds(50) }

    init(_ loop: RunLoop, _ mode: RunLoop.Mode, _ options: HTTPServer.Options) {
        (self.loop, self.mode) = (loop, mode)
        granularity = min(max(min(options.requestTimeout, options.idleTimeout) / 16, .milliseconds(1)), .seconds(1))
    }

    // MARK: Connections

    /// Any thread.
    var connections: [HTTPConnection] { registry.withLock { $0 } }

    func insert(_ connection: HTTPConnection) {
        registry.withLock { connections in
            connection.position = connections.count
            connections.append(connection)
        }
    }

    /// O(1). Any thread.
    func remove(_ connection: HTTPConnection) {
        registry.withLock { connections in
            let position = connection.position
            guard position < connections.count, connections[position] === connection else { return }
            connections.swapAt(position, connections.count - 1)
            connections.removeLast()
            if position < connections.count { connections[position].position = position }
        }
    }

    /// Invalidates the timers. Any thread.
    func finish() {
        for timer in timers.withLock({ $0 }) { timer.invalidate() }
    }

    private func makeTimer(_ label: String, _ body: @escaping @Sendable (LoopHost) -> Void) -> RunLoop.Timer {
        let timer = RunLoop.Timer.onDemand(label: label) { [weak self] _ in if let self { body(self) } }
        loop.add(timer, forMode: mode)
        timers.withLock { $0.append(timer) }
        return timer
    }

    // MARK: Deadlines

    /// Has the timer fire at `date`, unless it fires earlier. Most connections are served long before, and move no timer.
    func expect(_ date: RunLoop.Instant) {
        if date >= nextDeadline { return }
        nextDeadline = date
        deadlines.nextFire = date
    }

    private func checkDeadlines() { /* DOES CALLOUT */
        let now = loop.clock.now
        nextDeadline = .distantFuture
        var next = RunLoop.Instant.distantFuture
        for connection in connections {
            let deadline = connection.deadline
            if deadline <= now { connection.deadlineIsOver() } else { next = min(next, deadline) }
        }
        // Not for each connection by itself.
        if next < .distantFuture { expect(max(next, now.advanced(by: granularity))) }
    }

    // MARK: Clients of slow handlers

    /// A handler runs. Most return before anybody would have watched.
    func responds(_ connection: HTTPConnection) {
        connection.unwatchedPosition = unwatched.count
        unwatched.append(connection)
        if !isWatching { startWatching() }
    }

    /// The handler has returned.
    func hasResponded(_ connection: HTTPConnection) {
        let position = connection.unwatchedPosition
        guard position < unwatched.count, unwatched[position] === connection else { return }
        unwatched.swapAt(position, unwatched.count - 1)
        unwatched.removeLast()
        if position < unwatched.count { unwatched[position].unwatchedPosition = position }
    }

    private func startWatching() {
        isWatching = true
        watch.nextFire = loop.clock.now.advanced(by: Self.watchDelay)
    }

    private func watchClients() { /* DOES CALLOUT */
        isWatching = false
        let now = loop.clock.now
        var (kept, due): ([HTTPConnection], [HTTPConnection]) = ([], [])
        for connection in unwatched {
            if now >= connection.watchDate { due.append(connection) } else { kept.append(connection) }
        }
        for (position, connection) in kept.enumerated() { connection.unwatchedPosition = position }
        unwatched = kept
        for connection in due where connection.watchClient() { responds(connection) }
        if !unwatched.isEmpty && !isWatching { startWatching() }
    }

    // MARK: The date

    /// `Date: …` with its end of line.
    var date: [UInt8] { dateField.bytes(at: time(nil)) }
}

/// The field `Date`, made once a second.
struct DateField {
    private var second: time_t = -1
    private var bytes: [UInt8] = []

    mutating func bytes(at now: time_t) -> [UInt8] {
        if now != second { (second, bytes) = (now, Self.make(now)) }
        return bytes
    }

    /// RFC 9110, 5.6.7.
    private static func make(_ now: time_t) -> [UInt8] {
        var (now, parts) = (now, tm())
        gmtime_r(&now, &parts)
        func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        let day = "\(days[Int(parts.tm_wday)]), \(two(parts.tm_mday)) \(months[Int(parts.tm_mon)]) \(parts.tm_year + 1900)"
        return Array("Date: \(day) \(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec)) GMT\r\n".utf8)
    }
}

#endif
