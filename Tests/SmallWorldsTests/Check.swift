// Plays a world on the run loop and on the model, and reports the differences.

import EventLoop
import EventLoopTestSupport
import Testing

/// Describes the failure; nil if there is none.
func check(_ world: World) throws -> String? { compare(try playOnLoop(world), with: world) }

/// Describes the failure of one play of the world.
func compare(_ ours: Played, with world: World) -> String? {
    let model = playOnModel(world, lastReadyFirst: false)
    func isRight(_ model: Played) -> Bool { model.trace == ours.trace && model.passes == ours.passes }
    var complaints = ours.complaints
    if !isRight(model) && !isRight(playOnModel(world, lastReadyFirst: true)) {
        complaints.append("the rules say  \(model.trace)")
        if ours.passes != model.passes { complaints.append("passes: \(ours.passes); the rules say \(model.passes)") }
    }
    return complaints.isEmpty ? nil : (["the loop did   \(ours.trace)"] + complaints).joined(separator: "\n")
}

struct Played: Sendable {
    var trace: String
    var complaints: [String]
    var passes: Int
}

func playOnModel(_ world: World, lastReadyFirst: Bool) -> Played {
    let model = Model(world, lastReadyFirst: lastReadyFirst)
    let player = Player(world, on: model)
    model.player = player
    player.play()
    return Played(trace: player.trace, complaints: player.complaintsAtEnd, passes: model.passes)
}

func playOnLoop(_ world: World) throws -> Played {
    let stage = LoopStage(world)
    try plainThread { stage.play() }.join()
    return stage.played()
}

/// The loop's player outlives the thread, because the thread's end makes callouts.
private final class LoopStage: @unchecked Sendable {
    // SAFETY: the world's thread uses it; after that thread is joined, the joining thread does.

    private let world: World
    private var player: Player?
    private var objects: [(name: String, object: WeakObject)] = []
    private var passes = 0

    init(_ world: World) { self.world = world }

    func play() {
        let machine = LoopMachine(world)
        let player = Player(world, on: machine)
        self.player = player
        machine.player = player
        if world.isObserved { machine.observeAll() }
        player.play()
        passes = machine.passes
        objects = machine.takeObjects()
    }

    func played() -> Played {
        let player = player!  // the world was played
        var complaints = player.complaintsAtEnd
        for (name, object) in objects where object.object != nil { complaints.append("\(name) is held by somebody after the end") }
        return Played(trace: player.trace, complaints: complaints, passes: passes)
    }
}
