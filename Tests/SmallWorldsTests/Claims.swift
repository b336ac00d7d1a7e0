// Claims that hold in every world, regardless of the model:
//
// - No handler is called for a mode that the item was removed from, nor after its invalidation (9.3).
// - `onInvalidation` is called once, and not before the end (4.20).
// - Every item that was made ready is served, unless it was invalidated, silenced, or removed from every mode (3.2, 4.3, 16.6).
// - The letters of a run are E (T S (W A)?)* X (7, run-sequence).

struct Claims {
    private let world: World
    private var modes: [String: Set<Mode>] = [:]
    private var second: Set<String> = []
    private var common: Set<String> = []
    private var commonModes: Set<Mode> = [.normal]
    private var invalid: Set<String> = []
    private var pending: Set<String> = []
    private var silent: Set<String> = []
    private var disarmed: Set<String> = []
    private var fired: [String] = []
    private var running: [Mode] = [.normal]
    private var isOnSecondLoop = false

    init(_ world: World) { self.world = world }

    func isInSecondLoop(_ name: String) -> Bool { second.contains(name) }

    // MARK: The player's requests

    mutating func willAdd(_ name: String, _ mode: Mode, _ secondLoop: Bool) {
        if invalid.contains(name) { return }
        let isElsewhere = secondLoop ? !modes[name, default: []].isEmpty || common.contains(name) : second.contains(name)
        if isElsewhere && !world.kind(name).isSource { return }
        if secondLoop { second.insert(name) } else { modes[name, default: []].insert(mode) }
    }

    mutating func willRemove(_ name: String, _ mode: Mode) { modes[name]?.remove(mode) }

    mutating func willAddToCommon(_ name: String) {
        if invalid.contains(name) || second.contains(name) && !world.kind(name).isSource { return }
        common.insert(name)
        modes[name, default: []].formUnion(commonModes)
    }

    mutating func willRemoveFromCommon(_ name: String) {
        if common.remove(name) != nil { modes[name]?.subtract(commonModes) }
    }

    mutating func willMakeCommon() {
        commonModes.insert(.other)
        for name in common where !invalid.contains(name) { modes[name, default: []].insert(.other) }
    }

    mutating func willInvalidate(_ name: String) {
        invalid.insert(name)
        pending.remove(name)
    }

    mutating func willReady(_ name: String) { if !invalid.contains(name) { pending.insert(name) } }
    mutating func willMute(_ name: String, _ isMuted: Bool) { if isMuted { silent.insert(name) } else { silent.remove(name) } }
    mutating func willRearm(_ name: String) { disarmed.remove(name) }
    mutating func willFire(_ name: String) { fired.append(name) }
    mutating func didFire(_ name: String) { fired.removeLast() }
    mutating func willRun(_ mode: Mode) { running.append(mode) }
    mutating func didRun() { running.removeLast() }
    mutating func enterSecondLoop(_ isInside: Bool) { isOnSecondLoop = isInside }

    // MARK: Checking the claims

    mutating func atCallout(_ word: String) -> [String] {
        guard let item = world.items.first(where: { word == $0.name || word.hasPrefix($0.name + ":") }) else { return [] }
        pending.remove(item.name)
        if item.kind == .oneShot { disarmed.insert(item.name) }
        if fired.last == item.name { return [] }
        if invalid.contains(item.name) { return ["\(item.name) is called after its invalidation"] }
        guard item.kind.isMember else { return [] }
        let isMember = isOnSecondLoop ? second.contains(item.name) : modes[item.name, default: []].contains(running.last!)
        return isMember ? [] : ["\(item.name) is called in a mode that it is not in"]
    }

    /// Call this after the runs and before everything is invalidated.
    func atEnd(_ words: [String]) -> [String] {
        let lost = pending.filter { name in
            !silent.contains(name) && !disarmed.contains(name) && (!modes[name, default: []].isEmpty || second.contains(name))
        }
        return lost.sorted().map { "\($0) was made ready and not called" } + complaintsOfLetters(words)
    }

    func afterEnd(_ words: [String]) -> [String] {
        world.items.compactMap { item in
            let ends = words.count { $0 == "~" + item.name }
            if item.kind.isSource && ends != 1 { return "onInvalidation of \(item.name) was called \(ends) times" }
            return nil
        }
    }

    /// The letters, run by run, of the observers that write them.
    private func complaintsOfLetters(_ words: [String]) -> [String] {
        guard world.isObserved else { return [] }
        var lasts: [Character] = []
        for word in words {
            guard let letter = word.last, "ETSWAX".contains(letter), word.count == 1 || word == "o:\(letter)" else { continue }
            if letter == "E" {
                lasts.append("E")
                continue
            }
            guard let last = lasts.last else { return ["\(word) outside a run"] }
            let follows: [Character: String] = ["E": "TX", "T": "S", "S": "WTX", "W": "A", "A": "TX"]
            guard follows[last]!.contains(letter) else { return ["\(word) follows \(last)"] }
            if letter == "X" { lasts.removeLast() } else { lasts[lasts.count - 1] = letter }
        }
        return lasts.isEmpty ? [] : ["a run without an exit"]
    }
}
