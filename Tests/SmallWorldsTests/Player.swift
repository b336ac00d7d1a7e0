// Plays a world on any machine, and records the events. It also checks the claims that need no model, against the player's own requests.

/// A machine that plays a world: the model of the rules, the run loop, or CFRunLoop.
protocol Machine: AnyObject {
    func make(_ item: Item)
    func add(_ name: String, _ mode: Mode, secondLoop: Bool)
    func remove(_ name: String, _ mode: Mode)
    func addToCommon(_ name: String)
    func removeFromCommon(_ name: String)
    func makeCommon()
    func invalidate(_ name: String)
    func ready(_ name: String)
    func mute(_ name: String, _ isMuted: Bool)
    func rearm(_ name: String)
    func setDate(_ name: String, secondsFromNow: Int)
    func fire(_ name: String)
    func queueBlock(_ word: String)
    func queuePerform(_ word: String)
    func run(_ mode: Mode, seconds: Int, returnsAfterSource: Bool) -> String
    func stop(sticky: Bool)
    func wakeUp()
    /// The item's validity, its modes, and its pending events.
    func state(_ name: String) -> String
    /// Runs `body` on the second loop's thread, and waits for it.
    func onSecondLoop(_ body: () -> Void)
    var passes: Int { get }
}

final class Player {
    let world: World
    private unowned let machine: any Machine
    private(set) var words: [String] = []
    private var complaints: [String] = []
    private var counts: [String: Int] = [:]
    private var claims: Claims

    private let seconds: Int

    /// If `polls` is true, each run from outside makes one pass.
    init(_ world: World, on machine: any Machine, polls: Bool = false) {
        self.world = world
        seconds = polls ? 0 : 10
        self.machine = machine
        claims = Claims(world)
    }

    var trace: String { words.joined(separator: " ") }
    /// All complaints, after the threads have ended.
    var complaintsAtEnd: [String] { complaints + claims.afterEnd(words) }

    // MARK: The script

    func play() {
        for item in world.items { machine.make(item) }
        for item in world.items where item.kind.isMember { add(item.name, item.isInOther ? .other : .normal) }
        for item in world.items { prepare(item) }
        let modes: [Mode] =
            seconds > 0 ? [.normal, .normal, .other, .normal] : [.normal, .normal, .normal, .other, .other, .normal, .normal]
        for mode in modes { runFromOutside(mode) }
        for item in world.items { words.append("\(item.name):\(machine.state(item.name))") }
        if world.usesSecondLoop {
            machine.onSecondLoop {
                words.append("second")
                claims.enterSecondLoop(true)
                runFromOutside(.normal)
                for item in world.items where claims.isInSecondLoop(item.name) { invalidate(item.name) }
            }
            claims.enterSecondLoop(false)
            words.append("first")
            runFromOutside(.normal)
        }
        complaints += claims.atEnd(words)
        for item in world.items where item.kind.isMember || item.kind == .delayed || item.kind == .keepAlive { invalidate(item.name) }
        machine.invalidate("keepers")
        runFromOutside(.normal)
        runFromOutside(.other)
        if words.suffix(2) != ["=finished", "=finished"] { complaints.append("a loop that nothing is in does not finish") }
    }

    private func prepare(_ item: Item) {
        switch item.kind {
        case .source, .level, .edge, .oneShot, .port, .signal, .listener: ready(item.name)
        case .onDemand: machine.setDate(item.name, secondsFromNow: 0)
        default: break
        }
    }

    private func runFromOutside(_ mode: Mode) {
        for _ in 0..<20 {
            claims.willRun(mode)
            let result = machine.run(mode, seconds: seconds, returnsAfterSource: world.returnsAfterSource)
            claims.didRun()
            words.append("=\(result)")
            if result != "handledSource" { break }
        }
    }

    // MARK: Callouts

    func callout(_ word: String) {
        words.append(word)
        counts[word, default: 0] += 1
        if words.count > 2_000 { fatalError("this world does not come to an end:\n\(world.source)") }
        complaints += claims.atCallout(word)
        for hook in world.hooks where hook.word == word && hook.call == counts[word] {
            for action in hook.actions { perform(action) }
        }
    }

    private func perform(_ action: Action) {
        switch action {
        case .remove(let name): remove(name, .normal)
        case .invalidate(let name): invalidate(name)
        case .readd(let name):
            remove(name, .normal)
            add(name, .normal)
        case .move(let name):
            remove(name, .normal)
            add(name, .other)
        case .addToOther(let name): add(name, .other)
        case .moveToLoop(let name):
            remove(name, .normal)
            remove(name, .other)
            add(name, .normal, secondLoop: true)
        case .addToCommon(let name):
            claims.willAddToCommon(name)
            machine.addToCommon(name)
        case .removeFromCommon(let name):
            claims.willRemoveFromCommon(name)
            machine.removeFromCommon(name)
        case .makeCommon:
            claims.willMakeCommon()
            machine.makeCommon()
        case .ready(let name): ready(name)
        case .mute(let name): mute(name, true)
        case .unmute(let name): mute(name, false)
        case .rearm(let name):
            claims.willRearm(name)
            machine.rearm(name)
        case .date(let name, let seconds): machine.setDate(name, secondsFromNow: seconds)
        case .fire(let name):
            claims.willFire(name)
            machine.fire(name)
            claims.didFire(name)
        case .stop: machine.stop(sticky: false)
        case .stopSticky: machine.stop(sticky: true)
        case .wakeUp: machine.wakeUp()
        case .run(let mode, let seconds):
            claims.willRun(mode)
            words.append("(")
            let result = machine.run(mode, seconds: seconds, returnsAfterSource: false)
            words.append(")=\(result)")
            claims.didRun()
        case .block: machine.queueBlock("k")
        case .perform: machine.queuePerform("p")
        }
    }

    private func add(_ name: String, _ mode: Mode, secondLoop: Bool = false) {
        claims.willAdd(name, mode, secondLoop)
        machine.add(name, mode, secondLoop: secondLoop)
    }

    private func remove(_ name: String, _ mode: Mode) {
        claims.willRemove(name, mode)
        machine.remove(name, mode)
    }

    private func invalidate(_ name: String) {
        claims.willInvalidate(name)
        machine.invalidate(name)
    }

    private func mute(_ name: String, _ isMuted: Bool) {
        claims.willMute(name, isMuted)
        machine.mute(name, isMuted)
    }

    private func ready(_ name: String) {
        claims.willReady(name)
        machine.ready(name)
    }
}
