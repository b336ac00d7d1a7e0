// Finds a schedule that fails in the same way with fewer choices.
//
// A schedule is a list of the steps at which another job ran than the first ready one. A choice taken away makes the rest of the run another one,
// so what is tried is run, and the choices that the run itself made are what is kept.

internal import CSimulation

struct Shortening {
    let problem: SimulatedRun.Problem
    let perform: (SimulatedRun.Settings) async -> SimulatedRun
    /// Limits of all tries together. None is of real time: a busy machine finds the same schedule.
    private let runLimit = 1_500
    private let stepLimit = 400_000

    init(problem: SimulatedRun.Problem, perform: @escaping (SimulatedRun.Settings) async -> SimulatedRun) {
        (self.problem, self.perform) = (problem, perform)
    }

    private struct Candidate {
        var choices: [csim_choice]
        var steps: Int

        func isShorter(than other: Candidate) -> Bool {
            (choices.count, steps, weight) < (other.choices.count, other.steps, other.weight)
        }
        private var weight: Int { choices.reduce(0) { $0 + Int($1.choice) } }
    }

    /// The choices of the shortest run that was found.
    func shorten(_ run: SimulatedRun) async -> [csim_choice] {
        var settings = run.settings
        settings.traces = false
        settings.records = true
        var best = Candidate(choices: run.choices, steps: run.steps)
        var (runs, steps) = (0, 0)
        func mayTry() -> Bool { runs < runLimit && steps < stepLimit && !Task.isCancelled }
        /// Whether the choices fail in the same way, and are an improvement.
        func tries(_ choices: [csim_choice]) async -> Bool {
            runs += 1
            settings.choices = choices
            let tried = await perform(settings)
            steps += tried.steps
            guard let found = tried.problem, found.isSame(as: problem) else { return false }
            let candidate = Candidate(choices: tried.choices, steps: tried.steps)
            guard candidate.isShorter(than: best) else { return false }
            best = candidate
            return true
        }
        // Most failures need the beginning only.
        var improved = true
        while improved && mayTry() {
            improved = false
            var keep = best.choices.count / 2
            while keep < best.choices.count && mayTry() {
                if await tries(Array(best.choices.prefix(keep))) {
                    improved = true
                    keep = best.choices.count / 2
                } else {
                    keep += max(1, (best.choices.count - keep) / 2)
                }
            }
            var size = max(1, best.choices.count / 2)
            while size >= 1 && mayTry() {
                var index = 0
                while index < best.choices.count && mayTry() {
                    let end = min(index + size, best.choices.count)
                    // Without these; and without these, with the later ones at the steps where they then belong.
                    let without = Array(best.choices[..<index] + best.choices[end...])
                    if await tries(without) {
                        improved = true
                        continue
                    }
                    let shift = UInt32(end - index)
                    let shifted =
                        best.choices[..<index]
                        + best.choices[end...].map { csim_choice(step: $0.step &- shift, choice: $0.choice, ready: 0) }
                    if end < best.choices.count, mayTry(), best.choices[end].step >= shift, await tries(Array(shifted)) {
                        improved = true
                        continue
                    }
                    index = end
                }
                size /= 2
            }
            var index = 0
            while index < best.choices.count && mayTry() {
                var lower = best.choices
                if lower[index].choice > 1 {
                    lower[index].choice = 1
                    if await tries(lower) { improved = true }
                }
                index += 1
            }
        }
        return best.choices
    }
}
