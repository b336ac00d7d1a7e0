// What a replay shows: the trace as text, and as a page.

internal import EventLoop
internal import EventLoopLibC
internal import EventLoopObserving

struct Timeline {
    private let steps: [TraceWriter.Step]

    init(_ run: SimulatedRun) { steps = run.trace?.steps ?? [] }

    /// Prints the trace, and where the page is.
    func show(_ trace: [String], schedule: String) {
        print("EVENTLOOP_SIMULATION: \(schedule)")
        for line in trace { print("  " + line) }
        if let path = writePage(schedule) { print("the timeline: \(path)") }
    }

    private func writePage(_ schedule: String) -> String? {
        let folder = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
        let path = "\(folder)/eventloop-simulation-\(getpid()).html"
        guard let file = fopen(path, "w") else { return nil }
        fputs(page(schedule), file)
        fclose(file)
        return path
    }

    /// The page of recordings, with a track for each task and actor, and an arrow from each step to those that it has made ready: tasks, and
    /// packets that arrive.
    func page(_ schedule: String) -> String {
        let shown = Array(steps.suffix(2_000))
        let starts = Self.starts(shown)
        var tracks: [(name: String, recording: RunLoop.Recording)] = []
        var numbers: [String: Int] = [:]
        for step in shown where numbers[step.track] == nil {
            numbers[step.track] = tracks.count
            tracks.append((step.track, RunLoop.Recording(loopID: UInt64(tracks.count + 1))))
        }
        var tasks: [UInt32: (track: Int, at: Int64)] = [:]
        var events: [UInt64: (track: Int, at: Int64)] = [:]
        for (index, step) in shown.enumerated() {
            guard let track = numbers[step.track] else { continue }
            let flow = UInt64(index + 1)
            let causes = [step.task == 0 ? nil : tasks.removeValue(forKey: step.task), events.removeValue(forKey: step.event)]
            for cause in causes.compactMap({ $0 }) {
                tracks[cause.track].recording.posts.append(
                    RunLoop.Recording.Post(to: UInt64(track + 1), flow: flow, at: RunLoop.Instant(nanoseconds: cause.at)))
            }
            let label = "\(SimulatedRun.text(of: step.at)) \(step.what)"
            tracks[track].recording.events.append(
                RunLoop.Recording.Event(
                    kind: .job, start: RunLoop.Instant(nanoseconds: starts[index]), duration: .nanoseconds(Self.length), label: label,
                    flow: flow))
            // In the middle, where it cannot be another step's.
            for task in step.wakes { tasks[task] = (track, starts[index] + Self.length / 2) }
            for event in step.scheduled { events[event] = (track, starts[index] + Self.length / 2) }
        }
        return RunLoop.Recording.timelineHTML(title: schedule, tracks)
    }

    /// Steps take no virtual time. Each has a microsecond here, so that their order can be seen.
    private static let length: Int64 = 800

    private static func starts(_ steps: [TraceWriter.Step]) -> [Int64] {
        var last = Int64.min
        return steps.map { step in
            // 146 years are the latest: a run may sleep for longer than a recording has time.
            last = max(Int64(min(step.at, 1 << 62)), last == .min ? .min : last + 1_000)
            return last
        }
    }
}
