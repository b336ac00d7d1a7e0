// Records one pass of a loop, and draws it: the ten steps of "The Run Loop Sequence of Events" down, time across.
//
// Observers are notified of six of the steps. That the loop slept follows from the two notifications around the sleep, and the client that is
// called marks step 9. (Recordings, which the page shows, need none of this.)

import EventLoop

/// Belongs to the thread that creates it, and observes that thread's loop.
final class PassRecorder {
    private enum Step: Int, CaseIterable {
        case entry = 1, beforeTimers, beforeSources, customSources, readyPort, beforeWaiting, sleep, afterWaiting, handle, exit

        var name: String {
            [
                "entry", "before timers", "before sources", "custom sources", "ready port?", "before waiting", "sleep", "after waiting",
                "handle wake-up", "exit",
            ][rawValue - 1]
        }
    }

    private struct Pass {
        var marks: [(step: Step, at: RunLoop.Instant)] = []
        var client = 0

        func time(of index: Int) -> Duration { marks[0].at.duration(to: marks[index].at) }
        var length: Duration { time(of: marks.count - 1) }
    }

    private var pass = Pass()
    /// The latest runs of one pass that slept and then called a client.
    private var passes: [Pass] = []
    private var next = 0
    private var observer: RunLoop.Observer?

    func start() {
        let here = LoopBound(self)
        let observer = RunLoop.Observer(activities: .all, label: "recorder") { _, activity in here.value.note(activity) }
        RunLoop.current.add(observer)
        self.observer = observer
    }

    func stop() { observer?.invalidate() }

    /// A client's handler calls this first.
    func handles(client: Int) {
        pass.client = client
        pass.marks.append((.handle, .now))
    }

    private func note(_ activity: RunLoop.Activity) {
        let now = RunLoop.Instant.now
        switch activity {
        case .entry: pass = Pass(marks: [(.entry, now)])
        case .beforeTimers: pass.marks.append((.beforeTimers, now))
        case .beforeSources: pass.marks.append((.beforeSources, now))
        case .beforeWaiting: pass.marks += [(.beforeWaiting, now), (.sleep, .now)]  // the last moment that code can see
        case .afterWaiting: pass.marks.append((.afterWaiting, now))
        case .exit:
            pass.marks.append((.exit, now))
            keep()
        default: break
        }
    }

    private func keep() {
        // With a later pass of the run, or another client, there are more steps.
        guard pass.marks.map(\.step) == [.entry, .beforeTimers, .beforeSources, .beforeWaiting, .sleep, .afterWaiting, .handle, .exit]
        else {
            return
        }
        if passes.count < 255 { passes.append(pass) } else { passes[next % 255] = pass }
        next += 1
    }

    /// The pass of median length. Nil if none was kept.
    func picture() -> String? {
        let sorted = passes.sorted { $0.length < $1.length }
        guard !sorted.isEmpty else { return nil }
        let pass = sorted[sorted.count / 2]
        let head = "   #  " + "step".padded(16) + "at".aligned(10) + "took".aligned(10)
        let caption = "  Step 9 called client \(pass.client), which asked again. The median of \(sorted.count) recorded passes."
        return ([head] + Step.allCases.map { row($0, of: pass) } + ["", caption]).joined(separator: "\n")
    }

    private func row(_ step: Step, of pass: Pass) -> String {
        let name = "\(step.rawValue)".aligned(4) + "  " + step.name.padded(16)
        guard let index = pass.marks.firstIndex(where: { $0.step == step }) else { return name + "none".aligned(10) }
        let (start, end) = (pass.time(of: index), pass.time(of: min(index + 1, pass.marks.count - 1)))
        let took = step == .exit ? "" : short(end - start)
        return name + short(start).aligned(10) + took.aligned(10) + "  " + bar(step, start / pass.length, end / pass.length)
    }

    private func bar(_ step: Step, _ start: Double, _ end: Double) -> String {
        let (from, to) = (Int(start * 36), Int((end * 36).rounded()))
        return String(repeating: " ", count: min(from, 35))
            + (to > from ? String(repeating: step == .sleep ? "░" : "█", count: to - from) : "▏")
    }
}
