// Reports a step that does not end: a loop without an `await` has no point at which the simulation could stop it.

internal import CSimulation
internal import CStacks
internal import EventLoopLibC
package import Synchronization

/// The run of a `simulate` call, for the task that watches it.
final class WatchedRun: Sendable {
    private let current = Mutex<SimulatedRun?>(nil)
    var run: SimulatedRun? {
        get { current.withLock { $0 } }
        set { current.withLock { $0 = newValue } }
    }
}

/// In real time, beside the simulation. It changes nothing of the run.
package enum HangWatch {
    package struct Settings: Sendable {
        package var limit = Duration.seconds(10)
        package var report: @Sendable (String) -> Void = { text in
            Array("EventLoopSimulation: \(text)\n".utf8).withUnsafeBytes { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
        }
    }
    /// Changed by tests only.
    package static let settings = Mutex(Settings())

    /// Calls `body`, and reports each step in it that takes too long.
    static func perform<Value>(_ watched: WatchedRun, _ body: () async throws -> Value) async rethrows -> Value {
        let watch = Task.detached { await observe(watched) }
        defer { watch.cancel() }
        return try await body()
    }

    private static func observe(_ watched: WatchedRun) async {
        var step = Step()
        while true {  // ends: when the task is cancelled
            let settings = settings.withLock { $0 }
            do { try await Task.sleep(for: settings.limit / 4) } catch { return }
            guard let run = watched.run else { continue }
            if step.isTooLong(run, beat: csim_beat(run.raw), at: .now, limit: settings.limit) {
                settings.report(text(run, settings.limit))
            }
        }
    }

    /// The step that was seen last.
    package struct Step {
        /// Not its address, which the next run may have, in a step of the same number.
        private weak var run: AnyObject?
        private var beat: UInt64 = 0
        private var since = ContinuousClock.now
        private var isReported = false

        package init() {}

        /// Whether it is still the same step, has been for `limit`, and was not reported. `beat` is odd while a step is in progress.
        package mutating func isTooLong(_ run: AnyObject, beat: UInt64, at now: ContinuousClock.Instant, limit: Duration) -> Bool {
            if beat % 2 == 0 || self.run !== run || self.beat != beat {
                self.run = run
                (self.beat, since, isReported) = (beat, now, false)
                return false
            }
            if isReported || now - since < limit { return false }
            isReported = true
            return true
        }
    }

    private static func text(_ run: SimulatedRun, _ limit: Duration) -> String {
        let place = "\(run.settings.file):\(run.settings.line): seed \(run.settings.seed)"
        var lines = ["\(place): a step has run for more than \(limit) of real time. A loop without an await never ends. It is in:"]
        var stack = cstacks_stack()
        if cstacks_interrupt_for_stack(csim_thread(run.raw), 1_000, &stack) {
            let callers = (0..<stack.count).map { UnsafeMutableRawPointer(bitPattern: UInt(cstacks_stack_frame(&stack, $0))) }
            for caller in callers.compactMap({ $0 }) { if let name = Symbols.nameInProgram(caller) { lines.append("  \(name)") } }
        }
        if lines.count == 1 { lines.append("  (its stack cannot be read)") }
        return lines.prefix(12).joined(separator: "\n")
    }
}
