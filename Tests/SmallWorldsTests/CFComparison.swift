// Compares CFRunLoop with the model: the worlds that it can play, and the rules by which we differ on purpose.

import EventLoopTestSupport
internal import Testing

extension Kind {
    /// Whether CFRunLoop has this kind of item.
    var isInCF: Bool { [.source, .level, .timer, .ticker, .block].contains(self) || isObserver }
}

extension Action {
    /// Whether CFRunLoop supports this action, in real time and without sleeping.
    var isInCF: Bool {
        switch self {
        case .remove, .invalidate, .readd, .move, .addToOther, .ready, .date, .stop, .wakeUp, .block, .run(_, 0): true
        default: false
        }
    }
}

extension World {
    var isInCF: Bool {
        items.allSatisfy(\.kind.isInCF) && hooks.allSatisfy { $0.actions.allSatisfy(\.isInCF) && !$0.word.hasPrefix("~") }
    }
}

/// The two traces of a world, without dates and last callouts. The runs from outside poll.
func playBeside(_ world: World) throws -> (cf: String, model: String) {
    let stage = CFStage(world)
    try plainThread { stage.play() }.join()
    let model = Model(world, lastReadyFirst: false)
    let player = Player(world, on: model, polls: true)
    model.player = player
    model.hasDates = false
    player.play()
    return (withoutEnds(stage.player!.trace), withoutEnds(player.trace))
}

private func withoutEnds(_ trace: String) -> String { trace.split(separator: " ").filter { !$0.hasPrefix("~") }.joined(separator: " ") }

private final class CFStage: @unchecked Sendable {
    // SAFETY: the world's thread uses it; after that thread is joined, the joining thread does.
    let world: World
    var player: Player?
    init(_ world: World) { self.world = world }

    func play() {
        let machine = CFMachine(world)
        let player = Player(world, on: machine, polls: true)
        self.player = player
        machine.player = player
        machine.observeAll()
        player.play()
        machine.forget()
    }
}

// MARK: - Differences on purpose

/// The rule of docs/semantics.md by which the traces differ; nil if they should be equal.
func ruleOfDifference(_ world: World, cf: String, model: String) -> String? {
    let actions = world.hooks.flatMap(\.actions)
    /// Whether such an action applies to such an item.
    func some(_ kinds: (Kind) -> Bool, _ isMeant: (Action) -> Bool) -> Bool {
        actions.contains { action in isMeant(action) && action.item.map { kinds(world.kind($0)) } ?? false }
    }
    func takesOut(_ action: Action) -> Bool {
        switch action {
        case .remove, .move, .readd: true
        default: false
        }
    }
    func readds(_ action: Action) -> Bool { if case .readd = action { true } else { false } }
    func addsElsewhere(_ action: Action) -> Bool {
        switch action {
        case .move, .addToOther: true
        default: false
        }
    }

    // A stop coincides with the limit: ours returns `stopped`.
    if cf == model.replacingStops { return "1.6" }
    // CF serves one event in a pass: a descriptor or a wake-up, and a stop is a wake-up too.
    let ports = world.items.count { $0.kind == .level }
    if ports > 1 || (ports > 0 && actions.contains { $0 == .wakeUp || $0 == .stop }) { return "4.1" }
    // CF reads eight bytes at a time, so half of the bytes of two writes remain.
    if some({ $0 == .level }, { if case .ready = $0 { true } else { false } }) { return "4.2" }
    // CF performs a source that an earlier source of the pass has removed.
    if world.items.count(where: { $0.kind == .source }) > 1 && some({ $0 == .source }, { takesOut($0) && !readds($0) }) { return "3.10" }
    // CF fires a timer that an earlier timer of the pass has moved to another mode.
    if some(\.isTimer, takesOut) && some(\.isTimer, addsElsewhere) { return "5.4" }
    // CF notifies an observer that was removed while others were being notified.
    if some(\.isObserver, takesOut) { return "7.3" }
    return nil
}

extension String {
    fileprivate var replacingStops: String {
        split(separator: " ").map { $0.hasSuffix("=stopped") ? $0.dropLast(7) + "timedOut" : $0 }.joined(separator: " ")
    }
}

/// Describes the difference; nil if both traces are equal, or differ by a rule, which `found` counts.
func checkBeside(_ world: World, counting found: Locked<[String: Int]>) throws -> String? {
    let (cf, model) = try playBeside(world)
    if cf == model { return nil }
    guard let rule = ruleOfDifference(world, cf: cf, model: model) else {
        return "CFRunLoop did  \(cf)\nthe rules say  \(model)"
    }
    found.withLock { $0[rule, default: 0] += 1 }
    return nil
}
