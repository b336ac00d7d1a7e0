// A scenario of random choices: items in random modes whose callouts take random actions, nested runs among them. Both loops draw the same
// numbers as long as they behave the same, so the traces part at the first difference.
//
// The choices leave out the actions in which the two loops differ on purpose. A comment names the section of semantics.md for each.

internal import EventLoopTestSupport

final class RandomPlay: Sendable {
    /// The kinds of items in a play. Some kinds cannot be combined, because CF's behavior would then depend on chance.
    struct Cast: Sendable {
        /// CF serves one event in a pass, a timer or a wake-up, in the kernel's order, so a play has either timers or stops.
        var timers = false
        var stops = false
        /// An observer's stop before waiting, or a timer's stop, ends a run that sleeps; all other runs have a limit of zero.
        var sleeps = false
        /// CF forgets that it handled a source if a later source of the pass has lost its signal (3.17), so there is only one source.
        var nestsInSources = false
        /// CF withholds the blocks of all modes from runs nested in a block (6.6), so the blocks are of one mode only.
        var nestsInBlocks = false
    }

    private enum Place: Hashable { case outside, source(String), observer, timer, block }

    private struct State {
        var generator: SplitMix64
        var places: [Place] = [.outside]
        var actionsLeft = 60
        var blocks = 0
        var enders = 0
        /// The modes of the runs in progress.
        var runs: [String] = []
    }

    private static let modes = ["default", "m", "n"]
    private let stage: Stage
    private let cast: Cast
    private let state: Locked<State>
    private var sources: [String] { cast.nestsInSources ? ["a"] : ["a", "b", "c", "d"] }
    private let observers = ["o", "p", "q"]
    private var timers: [String] { cast.timers ? ["t", "u", "v"] : [] }

    init(_ stage: Stage, _ cast: Cast, seed: UInt64) {
        self.stage = stage
        self.cast = cast
        state = Locked(State(generator: SplitMix64(seed: seed)))
    }

    func perform() {
        makeItems()
        for _ in 1...5 {
            for _ in 0..<draw(5) { act() }
            run(in: Self.modes[draw(3)])
        }
        for name in sources + observers + timers {
            for mode in Self.modes + ["common"] { askContains(name, in: mode) }
            stage.askIsValid(name)
        }
        askModes()
    }

    private func makeItems() {
        for mode in Self.modes {
            stage.observe(mode, order: 100)
            guard cast.sleeps else { continue }
            // Keep-alives, since ours does not sleep in an emptied mode (1.14).
            stage.keepAlive(mode)
            if cast.timers { continue }
            stage.quietObserver("stopper-of-\(mode)", "W", order: .max, in: mode) { [self] in stage.stop() }
        }
        for name in sources {
            stage.watchedSource(name, order: draw(3) - 1, in: [], perform: { [self] _ in callout(.source(name)) })
            for _ in 0...draw(2) { add(name) }
        }
        for (index, name) in observers.enumerated() {
            // In CF, a run nested in an afterWaiting observer sleeps over the timers that ended the outer run's sleep (8.8).
            let letters = cast.timers && cast.sleeps ? "ETSWX" : "ETSWAX"
            let mask = String(letters.filter { _ in draw(2) == 0 })
            // Each observer has a different order, because CF adds the common items to a new common mode in the order of a set.
            stage.observer(name, mask, repeats: draw(3) > 0, order: index - 1, in: []) { [self] _ in callout(.observer) }
            add(name)
        }
        for name in timers {
            stage.dueTimer(name, interval: draw(2) == 0 ? nil : Stage.never, modes: []) { [self] _ in callout(.timer) }
            add(name)
        }
    }

    private func callout(_ place: Place) {
        state.withLock { $0.places.append(place) }
        for _ in 0..<draw(3) { act() }
        state.withLock { _ = $0.places.removeLast() }
    }

    // MARK: Actions

    private func act() {
        guard spend() else { return }
        switch draw(14) {
        case 0...3: signal(sources[draw(sources.count)])
        case 4...5: queueBlock()
        case 6: add(anyItem())
        case 7: remove(anyItem())
        case 8: if draw(3) == 0 { invalidate(anyItem()) }
        case 9...10: nest()
        case 11: if cast.stops { draw(3) == 0 ? stage.wakeUp() : stage.stop() }
        case 12: ask()
        default: if draw(3) == 0 { addCommonMode() }
        }
    }

    private func addCommonMode() {
        // CF checks the common modes before each block of a batch, ours at the beginning of the batch.
        if isInside(.block) { return }
        let mode = Self.modes[draw(3)]
        stage.sorted { stage.addCommonMode(mode) }
    }

    private func signal(_ name: String) {
        stage.note("!\(name)")
        stage.signal(name)
    }

    private func queueBlock() {
        let number = state.withLock { state in
            state.blocks += 1
            return state.blocks
        }
        let body: @Sendable () -> Void = { [self] in callout(.block) }
        if cast.nestsInBlocks { return stage.block("block\(number)", body: body) }
        if draw(3) == 0 { return stage.block("block\(number)", in: anyMode(), anyMode(), body: body) }
        stage.block("block\(number)", in: anyMode(), body: body)
    }

    private func add(_ name: String) {
        let mode = modeFor(name)
        stage.sorted { stage.add(name, to: mode) }
        letTimersBeSeen()
    }

    private func remove(_ name: String) {
        // CF still calls an item that an earlier source or observer of the same round removed (3.10, 7.3).
        if sources.contains(name) && isInsideSource(otherThan: name) { return }
        if observers.contains(name) && isInside(.observer) { return }
        let mode = modeFor(name)
        stage.sorted { stage.remove(name, from: mode) }
        letTimersBeSeen()
    }

    private func invalidate(_ name: String) {
        // CF forgets that it handled a source if the last one of the pass was invalidated (3.17).
        if sources.contains(name) && isInsideSource(otherThan: name) { return }
        stage.sorted { stage.invalidate(name) }
    }

    private func nest() {
        if !cast.nestsInSources && isInsideSource(otherThan: "") || !cast.nestsInBlocks && isInside(.block) { return }
        if state.withLock({ $0.runs.count }) < 4 { run(in: Self.modes[draw(3)]) }
    }

    private func run(in mode: String) {
        let polls = !cast.sleeps || draw(4) == 0
        if !polls && cast.timers { addEnder(to: mode) }
        letTimersBeSeen()
        state.withLock { $0.runs.append(mode) }
        if polls && (cast.stops || cast.timers && cast.sleeps) {
            // A stop wins over a limit of zero in ours, and loses to it in CF (1.6).
            stage.run(mode, limit: 0, returnAfterSource: draw(2) == 0, hidesStops: true)
        } else if polls {
            stage.run(mode, limit: 0, returnAfterSource: draw(2) == 0)
        } else {
            stage.run(mode, returnAfterSource: draw(2) == 0)
        }
        let outerMode = state.withLock { state in
            state.runs.removeLast()
            return state.runs.last
        }
        // The nested run may have fired the timer that was to end the outer run.
        if let outerMode, cast.timers && cast.sleeps { addEnder(to: outerMode) }
    }

    /// A timer that stops the run in which it fires.
    private func addEnder(to mode: String) {
        let number = state.withLock { state in
            state.enders += 1
            return state.enders
        }
        stage.dueTimer("ender\(number)", modes: [mode]) { [self] _ in stage.stop() }
    }

    private func ask() {
        switch draw(4) {
        case 0: stage.askCurrentMode()
        case 1: askModes()
        case 2: stage.askIsValid(anyItem())
        default: askContains(anyItem(), in: anyMode())
        }
    }

    private func askContains(_ name: String, in mode: String) {
        // CF leaves an item in the record of common items if the item was in no mode when it became invalid.
        if mode == "common" && !stage.isValid(name) { return }
        stage.askContains(name, in: mode)
    }

    /// CF makes a mode for the common modes when a block is queued for them (2.1).
    private func askModes() { stage.askModes(except: "common") }

    // MARK: Choices

    private func draw(_ bound: Int) -> Int { state.withLock { $0.generator.below(bound) } }

    private func spend() -> Bool {
        state.withLock { state in
            state.actionsLeft -= 1
            return state.actionsLeft >= 0
        }
    }

    private func anyItem() -> String {
        let names = sources + observers + timers
        return names[draw(names.count)]
    }

    private func anyMode() -> String { (Self.modes + ["common"])[draw(4)] }

    /// A timer stays in one mode, because CF fires a timer that was removed from the running mode if it is in another mode (5.4).
    private func modeFor(_ name: String) -> String {
        timers.firstIndex(of: name).map { Self.modes[$0 == 0 ? 0 : $0 - 1] } ?? anyMode()
    }

    private func isInside(_ place: Place) -> Bool { state.withLock { $0.places.contains(place) } }

    private func isInsideSource(otherThan name: String) -> Bool {
        state.withLock { state in
            state.places.contains { place in
                if case .source(let performing) = place { performing != name } else { false }
            }
        }
    }

    private func letTimersBeSeen() { if cast.timers { stage.work(0.15) } }
}
