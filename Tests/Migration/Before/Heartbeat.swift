// A program written for Foundation. Migration/After has the same program with other imports and no other change. MigrationTests compare the
// two texts and their behavior.

import Foundation

/// The program's events, in order. One thread at a time uses it.
public final class Journal: @unchecked Sendable {
    // SAFETY: one thread makes the journal, runs the loop whose blocks write to it, and reads it.
    public private(set) var lines: [String] = []

    func write(_ line: String) { lines.append(line) }
    func count(of line: String) -> Int { lines.filter { $0 == line }.count }
}

/// Beats until it is stopped, and reports the number of beats.
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

/// Runs the calling thread's loop through a program's typical uses.
public func runProgram() -> [String] {
    let journal = Journal()
    let loop = RunLoop.current

    // The mode is empty, so the loop does not run.
    journal.write("empty: \(loop.run(mode: .default, before: Date(timeIntervalSinceNow: 10)))")
    journal.write("limit of an empty mode: \(loop.limitDate(forMode: .default).map { _ in "a date" } ?? "none")")

    // Three beats; then the timer is invalid, the mode is empty, and the run ends.
    let heartbeat = Heartbeat(interval: 0.01, journal: journal)
    heartbeat.start(on: loop)
    loop.run(until: Date(timeIntervalSinceNow: 10))
    journal.write("beating: \(heartbeat.isBeating)")

    // A limit ends the run before the timer's date.
    let deadline = Date(timeIntervalSinceNow: 0.02)
    let far = Timer.scheduledTimer(withTimeInterval: 3600, repeats: false) { _ in journal.write("too early") }
    journal.write("limit: \((loop.limitDate(forMode: .default) ?? .distantPast) > deadline)")
    loop.run(until: deadline)
    journal.write("after the deadline: \(Date().timeIntervalSince(deadline) >= 0)")

    // The timer's date is set; the timer fires once and is then invalid.
    far.fireDate = Date(timeIntervalSinceNow: 3)
    journal.write("moved: \(abs(far.fireDate.timeIntervalSinceNow - 3) < 1)")
    far.fire()
    journal.write("valid: \(far.isValid), \(far.timeInterval)")

    // Blocks run in order, in a mode of their own.
    let mode = RunLoop.Mode("private")
    for index in 0..<3 { loop.perform(inModes: [mode], block: { journal.write("block \(index)") }) }
    let guardian = Timer(fire: .distantFuture, interval: 0, repeats: false) { _ in }
    loop.add(guardian, forMode: mode)
    _ = loop.run(mode: mode, before: Date())
    journal.write("mode outside runs: \(loop.currentMode.map(\.rawValue) ?? "none")")
    guardian.invalidate()

    // Waits for a flag.
    var isDone: Bool { journal.count(of: "done") > 0 }
    let done = Timer.scheduledTimer(withTimeInterval: 0.005, repeats: true) { timer in
        journal.write("done")
        timer.invalidate()
    }
    while !isDone && loop.run(mode: .default, before: Date(timeIntervalSinceNow: 0.001)) {}
    journal.write("valid: \(done.isValid)")
    return journal.lines
}
