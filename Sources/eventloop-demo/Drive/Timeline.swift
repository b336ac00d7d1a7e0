// One pass of a run loop as a picture: the ten steps down, time across.

import EventLoop

struct Timeline {
    let pass: Pass
    let palette: Palette

    /// Columns of the picture itself.
    private static let width = 32

    /// Every line is at most 80 columns wide.
    var lines: [String] {
        let scale = " \(Format.duration(nanoseconds: pass.total)) "
        let dashes = Timeline.width - 2 - scale.count
        let ruler =
            "├" + String(repeating: "─", count: dashes / 2) + scale
            + String(repeating: "─", count: dashes - dashes / 2) + "┤"
        let head = "   #  " + Format.left("step", 14) + Format.right("at", 13) + Format.right("took", 12) + "  "
        var lines = [palette.dim(head + ruler)]
        for step in Step.allCases { lines.append(row(step)) }
        return lines
    }

    private func row(_ step: Step) -> String {
        let name = Format.right("\(step.rawValue)", 4) + "  " + Format.left(step.name, 14)
        guard let start = pass.start(of: step), let first = pass.marks.first else {
            return palette.dim(name + Format.right("·   ", 13) + Format.right("·   ", 12) + "  " + absence(of: step))
        }
        let offset = Format.nanoseconds(of: first.at.duration(to: start))
        let duration = pass.duration(of: step) ?? 0
        let took = step == .exit ? "" : Format.microseconds(duration)
        return name + Format.right(Format.microseconds(offset), 13) + Format.right(took, 12) + "  "
            + bar(step, from: offset, for: duration)
    }

    private func bar(_ step: Step, from offset: UInt64, for duration: UInt64) -> String {
        let scale = Double(Timeline.width) / Double(max(1, pass.total))
        let start = min(Timeline.width - 1, Int(Double(offset) * scale))
        let end = min(Timeline.width, Int((Double(offset + duration) * scale).rounded()))
        let lead = String(repeating: " ", count: start)
        // Too short for a column: a thin line instead.
        guard end > start, Double(duration) * scale >= 0.6 else { return lead + paint(step, "▏") }
        return lead + paint(step, String(repeating: step == .sleep ? "░" : "█", count: end - start))
    }

    private func paint(_ step: Step, _ text: String) -> String {
        switch step {
        case .sleep: palette.blue(text)
        case .customSources, .handle: palette.green(text)
        default: palette.cyan(text)
        }
    }

    /// Why a step is not in the picture.
    private func absence(of step: Step) -> String {
        switch step {
        case .customSources: "none was signaled"
        case .readyPort: pass.slept ? "none was ready: go on and sleep" : "one was ready: jump to step 9"
        case .beforeWaiting, .sleep, .afterWaiting: "skipped by step 5"
        default: "nothing to do"
        }
    }
}

extension Step {
    var name: String {
        switch self {
        case .entry: "entry"
        case .beforeTimers: "before timers"
        case .beforeSources: "before sources"
        case .customSources: "custom sources"
        case .readyPort: "ready port?"
        case .beforeWaiting: "before waiting"
        case .sleep: "sleep"
        case .afterWaiting: "after waiting"
        case .handle: "handle wake-up"
        case .exit: "exit"
        }
    }
}
