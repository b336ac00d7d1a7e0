// A program as it is written for Foundation. Migration/After has it again, with other imports and nothing else changed:
// MigrationTests compare the two texts, and what the two do.

import EventLoop
import EventLoopFoundation

/// What happened, in order. Used by one thread at a time.
public final class Journal: @unchecked Sendable {
    // SAFETY: one thread makes the journal, runs the loop whose blocks write to it, and reads it.
    public private(set) var lines: [String] = []

    func write(_ line: String) { lines.append(line) }
    func count(of line: String) -> Int { lines.filter { $0 == line }.count }
}

/// Beats until it is stopped, and tells how often.
public final class Heartbeat: @unchecked Sendable {
    // SAFETY: as `Journal.lines`.
    private var timer: Timer?
    private let interval: TimeInterval
    private let journal: Journal

    init(interval: TimeInterval, journal: Journal) {
        self.interval = interval
        self.journal = journal
    }

    func start(on loop: RunLoop, forMode mode: RunLoop.Mode = .common) {
        let timer = Timer(fire: Date(timeIntervalSinceNow: interval), interval: interval, repeats: true) { [journal] timer in
            journal.write("beat")
            if journal.count(of: "beat") == 3 { timer.invalidate() }
        }
        timer.tolerance = interval / 10
        loop.add(timer, forMode: mode)
        self.timer = timer
    }

    var isBeating: Bool { timer?.isValid ?? false }
}

/// Runs the calling thread's loop through what a program does with it.
public func runProgram() -> [String] {
    let journal = Journal()
    let loop = RunLoop.current

    // Nothing to wait for: no run.
    journal.write("empty: \(loop.run(mode: .default, before: Date(timeIntervalSinceNow: 10)))")
    journal.write("limit of an empty mode: \(loop.limitDate(forMode: .default).map { _ in "a date" } ?? "none")")

    // Three beats, then the timer is gone, and with it the reason to run.
    let heartbeat = Heartbeat(interval: 0.01, journal: journal)
    heartbeat.start(on: loop)
    loop.run(until: Date(timeIntervalSinceNow: 10))
    journal.write("beating: \(heartbeat.isBeating)")

    // A limit that ends a run, before the timer's date.
    let deadline = Date(timeIntervalSinceNow: 0.02)
    let far = Timer.scheduledTimer(withTimeInterval: 3600, repeats: false) { _ in journal.write("too early") }
    journal.write("limit: \((loop.limitDate(forMode: .default) ?? .distantPast) > deadline)")
    loop.run(until: deadline)
    journal.write("after the deadline: \(Date().timeIntervalSince(deadline) >= 0)")

    // Moved, it fires once, and is over.
    far.fireDate = Date(timeIntervalSinceNow: 3)
    journal.write("moved: \(abs(far.fireDate.timeIntervalSinceNow - 3) < 1)")
    far.fire()
    journal.write("valid: \(far.isValid), \(far.timeInterval)")

    // Blocks, in order, in a mode of their own.
    let mode = RunLoop.Mode("private")
    for index in 0..<3 { loop.perform(inModes: [mode], block: { journal.write("block \(index)") }) }
    let guardian = Timer(fire: .distantFuture, interval: 0, repeats: false) { _ in }
    loop.add(guardian, forMode: mode)
    _ = loop.run(mode: mode, before: Date())
    journal.write("mode outside runs: \(loop.currentMode.map(\.rawValue) ?? "none")")
    guardian.invalidate()

    // Waiting for a flag.
    var isDone: Bool { journal.count(of: "done") > 0 }
    let done = Timer.scheduledTimer(withTimeInterval: 0.005, repeats: true) { timer in
        journal.write("done")
        timer.invalidate()
    }
    while !isDone && loop.run(mode: .default, before: Date(timeIntervalSinceNow: 0.001)) {}
    journal.write("valid: \(done.isValid)")
    return journal.lines
}
