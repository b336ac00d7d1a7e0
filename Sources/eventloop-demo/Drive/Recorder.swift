// Records a loop's notifications, pass by pass, with their times. The timeline is drawn from them.
//
// Observers are notified of six of the Guide's ten steps. The demo's handlers add that a custom source was
// performed (step 4) and what woke the loop (step 9). That the loop slept (7) follows from the two
// notifications around the sleep; their absence means that it did not (the jump of step 5).

import EventLoop

/// The ten steps of "The Run Loop Sequence of Events".
enum Step: Int, CaseIterable {
    case entry = 1, beforeTimers, beforeSources, customSources, readyPort
    case beforeWaiting, sleep, afterWaiting, handle, exit
}

/// The reason for which a handler was called.
enum Cause {
    case response(connection: Int)
    case timer
    case batches(Int)
}

/// A run of the loop that made a single pass, from entry to exit.
struct Pass {
    struct Mark {
        var step: Step
        var at: RunLoop.Instant
    }
    var marks: [Mark] = []
    var cause: Cause?

    func start(of step: Step) -> RunLoop.Instant? { marks.first { $0.step == step }?.at }

    /// A step lasts until the next recorded moment.
    func duration(of step: Step) -> UInt64? {
        guard let index = marks.firstIndex(where: { $0.step == step }) else { return nil }
        guard index + 1 < marks.count else { return 0 }
        return Format.nanoseconds(of: marks[index].at.duration(to: marks[index + 1].at))
    }

    var total: UInt64 {
        guard let first = marks.first, let last = marks.last else { return 0 }
        return Format.nanoseconds(of: first.at.duration(to: last.at))
    }

    var slept: Bool { marks.contains { $0.step == .sleep } }
}

/// Belongs to the thread that creates it, and observes that thread's loop.
final class Recorder {
    /// Totals since `start`.
    private(set) var passes: UInt64 = 0
    private(set) var passesThatSlept: UInt64 = 0

    private var current = Pass()
    private var passesInRun = 0
    /// The latest passes that slept and handled something, and the latest that handled something without a sleep.
    private var slept = Ring()
    private var jumped = Ring()
    private var observer: RunLoop.Observer?

    func start() {
        let here = LoopBound(self)
        let observer = RunLoop.Observer(activities: .all, label: "recorder") { _, activity in
            here.value.heard(activity)
        }
        RunLoop.current.add(observer)
        self.observer = observer
    }

    func stop() {
        observer?.invalidate()
        observer = nil
    }

    /// The handler of a timer or a descriptor calls this first.
    func handling(_ cause: Cause) {
        note(.handle, cause)
    }

    /// The handler of a custom source calls this first.
    func performing(_ cause: Cause) {
        note(.customSources, cause)
    }

    /// The pass of median length among the latest ones, and their number. A pass that slept, if there is one.
    func typicalPass() -> (pass: Pass, among: Int)? {
        let passes = (slept.passes.isEmpty ? jumped : slept).passes.sorted { $0.total < $1.total }
        return passes.isEmpty ? nil : (passes[passes.count / 2], passes.count)
    }

    private func heard(_ activity: RunLoop.Activity) {
        let now = RunLoop.Instant.now
        switch activity {
        case .entry:
            begin(at: now)
        case .beforeTimers:
            passes += 1
            passesInRun += 1
            mark(.beforeTimers, now)
        case .beforeSources: mark(.beforeSources, now)
        case .beforeWaiting:
            passesThatSlept += 1
            mark(.beforeWaiting, now)
            // The last moment before the thread sleeps that can be seen from here.
            mark(.sleep, .now)
        case .afterWaiting: mark(.afterWaiting, now)
        case .exit:
            mark(.exit, now)
            keepIfWhole()
        default: break
        }
    }

    private func begin(at now: RunLoop.Instant) {
        current.marks.removeAll(keepingCapacity: true)
        current.cause = nil
        passesInRun = 0
        mark(.entry, now)
    }

    private func note(_ step: Step, _ cause: Cause) {
        guard observer != nil else { return }
        current.cause = cause
        mark(step, .now)
    }

    private func mark(_ step: Step, _ at: RunLoop.Instant) {
        // A long run makes many passes. Only a run of one pass can be shown, so the others are not kept.
        if passesInRun <= 1 { current.marks.append(Pass.Mark(step: step, at: at)) }
    }

    private func keepIfWhole() {
        guard passesInRun == 1, case .response = current.cause else { return }
        if current.slept {
            slept.keep(&current)
        } else {
            jumped.keep(&current)
        }
    }

    /// Swaps passes with used ones, so that recording allocates nothing once it is full.
    private struct Ring {
        private(set) var passes: [Pass] = []
        private var next = 0
        private static let capacity = 255

        mutating func keep(_ pass: inout Pass) {
            if passes.count < Ring.capacity {
                passes.append(pass)
                pass = Pass()
                return
            }
            swap(&passes[next], &pass)
            next = (next + 1) % Ring.capacity
        }
    }
}
