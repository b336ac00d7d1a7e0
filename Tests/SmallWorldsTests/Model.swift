// The rules as a small program: docs/semantics.md and docs/run-sequence.md, in the order of those pages. It shares no code with the library
// that it judges. It has one thread, no kernel and no lock; every collection is a list that it searches.

final class ModelItem {
    let name: String
    let kind: Kind
    var isValid = true
    /// Whether the item is recorded for the common modes of the first loop (2.4).
    var isCommon = false
    /// The item's places, in the order it joined them: a mode of the first loop, or the second loop's default mode.
    var places: [Place] = []
    /// Incremented when the item joins a place, or when its registration changes: readiness found before then must be found again (4.3).
    var joinings: [Place: Int] = [:]
    var insertion: [Place: Int] = [:]
    /// The calls in progress, and all other uses that delay `onInvalidation`.
    var uses = 0
    var hasEnded = false

    /// The step in which a port had its last turn, by loop.
    var messageStep: [Int: Int] = [:]
    /// How many times the item is ready: a flag for custom sources, a count for ports and listeners.
    var ready = 0
    var readyAt = 0
    var isMuted = false
    var isArmed = true

    var date: Int?
    /// The value that a date in the past reads back as (5.6).
    var pastDate: Int?
    /// When the timer was added to a mode, or its date set there: the order of equal dates (5.4).
    var filedAt: [Place: Int] = [:]
    var isFiring = false
    var wasDated = false

    struct Place: Hashable { var loop: Int, mode: Mode }

    init(_ item: Item) { (name, kind) = (item.name, item.kind) }

    func isIn(_ place: Place) -> Bool { places.contains(place) }
    var repeats: Bool { kind == .ticker }
}

final class Model: Machine {
    typealias Place = ModelItem.Place

    final class Frame {
        let place: Place
        let limit: Int
        let polls: Bool
        let returnsAfterSource: Bool
        var isStopped = false
        var isSticky = false
        /// A nested run ends the outer run's serving of the events it has found ready (run-sequence, nested runs).
        var lostItsBatch = false
        init(_ place: Place, _ limit: Int, _ polls: Bool, _ returnsAfterSource: Bool) {
            (self.place, self.limit, self.polls, self.returnsAfterSource) = (place, limit, polls, returnsAfterSource)
        }
    }

    struct Closure {
        var word: String
        var number: Int
        var place: Place
    }

    enum Turn: Int { case timers, ports, messages }

    static let interval = 4
    weak var player: Player!
    var items: [ModelItem] = []
    var commonModes: [Mode] = [.normal]
    /// Items invalidated on a thread other than this loop's.
    var ending: [(item: ModelItem, loop: Int)] = []
    var blocks: [Closure] = []
    var performs: [Closure] = []
    var frames: [Frame] = []
    var now = [100, 100]
    var isWoken = false
    var isStopKept = false
    var lastTurn: [Place: Turn] = [:]
    var servedAt: [String: Int] = [:]
    var isKept: Bool
    let isObserved: Bool
    /// The kernel reports descriptors in an unspecified order (4.1): either the first ready one comes first, or the last.
    let lastReadyFirst: Bool
    var currentLoop = 0
    var counter = 0
    private(set) var passes = 0
    /// Whether states include dates.
    var hasDates = true

    init(_ world: World, lastReadyFirst: Bool) {
        isKept = world.isKept
        isObserved = world.isObserved
        self.lastReadyFirst = lastReadyFirst
    }

    func next() -> Int {
        counter += 1
        return counter
    }

    func item(_ name: String) -> ModelItem { items.first { $0.name == name }! }
    func notePass() { passes += 1 }

    // MARK: Items

    func make(_ spec: Item) {
        let item = ModelItem(spec)
        items.append(item)
        let home = Place(loop: 0, mode: .normal)
        switch spec.kind {
        case .timer, .ticker: item.date = now[0]
        case .delayed:
            item.date = now[0]
            join(item, home)
        case .block: blocks.append(Closure(word: spec.name, number: next(), place: home))
        case .perform: performs.append(Closure(word: spec.name, number: next(), place: home))
        case .keepAlive: item.places = [home]
        case .process: item.ready = 1
        default: break
        }
    }

    private func join(_ item: ModelItem, _ place: Place) {
        if item.isIn(place) { return }  // adding twice has the same effect as adding once
        item.places.append(place)
        item.joinings[place, default: 0] += 1
        item.insertion[place] = next()
        if item.kind.isTimer {
            compareDateAgain(item, now[place.loop])
            item.filedAt[place] = next()
        }
        if item.kind.isWatched { item.readyAt = next() }
    }

    /// 5.6: a date that was past for one loop may not be past for the one that the timer joins.
    private func compareDateAgain(_ item: ModelItem, _ present: Int) {
        guard let past = item.pastDate, let date = item.date, present < date else { return }
        (item.date, item.pastDate) = (max(present, past), past < present ? past : nil)
    }

    /// 2.7, 3.1.
    func add(_ name: String, _ mode: Mode, secondLoop: Bool) {
        let (item, place) = (item(name), Place(loop: secondLoop ? 1 : 0, mode: mode))
        guard item.isValid else { return }
        if !item.kind.isSource && (item.places.contains { $0.loop != place.loop } || item.isCommon && place.loop != 0) { return }
        gain(item, place)
    }

    private func gain(_ item: ModelItem, _ place: Place) {
        if item.isIn(place) { return }
        join(item, place)
        using(item) { if item.kind == .source { call("+\(word(item.name, place))") } }
    }

    private func lose(_ item: ModelItem, _ places: [Place]) {
        item.places.removeAll { places.contains($0) }
        using(item) { for place in places where item.kind == .source { call("-\(word(item.name, place))") } }
    }

    /// 2.4.
    func addToCommon(_ name: String) {
        let item = item(name)
        guard item.isValid, item.kind.isSource || !item.places.contains(where: { $0.loop != 0 }) else { return }
        item.isCommon = true
        for mode in commonModes { gain(item, Place(loop: 0, mode: mode)) }
    }

    /// 2.5.
    func removeFromCommon(_ name: String) {
        let item = item(name)
        guard item.isValid, item.isCommon else { return }
        item.isCommon = false
        lose(item, commonModes.map { Place(loop: 0, mode: $0) }.filter { item.isIn($0) })
    }

    /// 2.3, 2.4.
    func makeCommon() {
        if commonModes.contains(.other) { return }
        commonModes.append(.other)
        for item in items where item.isCommon && item.isValid { gain(item, Place(loop: 0, mode: .other)) }
    }

    /// 3.1, 3.2.
    func remove(_ name: String, _ mode: Mode) {
        let (item, place) = (item(name), Place(loop: 0, mode: mode))
        guard item.isValid, item.isIn(place) else { return }
        lose(item, [place])
    }

    /// 3.2, 16.13: the item is first invalid, then its pending signals are dropped, then `cancel` is called for every mode.
    func invalidate(_ name: String) {
        if name == "keepers" { return isKept = false }
        let item = item(name)
        guard item.isValid else { return }
        item.isValid = false
        item.ready = 0
        // Another loop releases the item when that loop runs (4.20).
        for loop in Set(item.places.map(\.loop) + (item.isCommon ? [0] : [])) where loop != currentLoop && item.kind.isSource {
            item.uses += 1
            ending.append((item, loop))
        }
        // This thread's own loop last (4.16); the modes of each in the order in which they were created.
        let lost = [1 - currentLoop, currentLoop].flatMap { loop in
            [Mode.normal, .other].map { Place(loop: loop, mode: $0) }.filter { item.isIn($0) }
        }
        item.isCommon = false
        lose(item, lost)
    }

    /// 4.20: `onInvalidation` waits for the calls in progress.
    func using(_ item: ModelItem, _ body: () -> Void) {
        item.uses += 1
        body()
        item.uses -= 1
        guard !item.isValid, item.uses == 0, !item.hasEnded else { return }
        item.hasEnded = true
        if item.kind.isSource { call("~\(item.name)") }
    }

    /// Releases the items that other threads have invalidated.
    func settle() {
        let settled = ending.filter { $0.loop == currentLoop }
        ending.removeAll { $0.loop == currentLoop }
        for (item, _) in settled {
            item.uses -= 1
            using(item) {}
        }
    }

    func word(_ name: String, _ place: Place) -> String { place.mode == .normal ? name : "\(name)@o" }
    func call(_ word: String) { player.callout(word) }

    func ready(_ name: String) {
        let item = item(name)
        guard item.isValid || item.kind.isDescriptor else { return }
        if item.ready == 0 { item.readyAt = next() }
        let adds = item.kind == .port || item.kind == .listener
        item.ready = adds ? item.ready + 1 : 1
    }

    func mute(_ name: String, _ isMuted: Bool) {
        let item = item(name)
        if item.isMuted == isMuted { return }
        item.isMuted = isMuted
        for place in item.places { item.joinings[place, default: 0] += 1 }
        if !isMuted { item.readyAt = next() }
    }

    func rearm(_ name: String) {
        let item = item(name)
        if !item.isArmed { item.readyAt = next() }
        item.isArmed = true
        for place in item.places { item.joinings[place, default: 0] += 1 }
    }

    /// 5.6, 5.9.
    func setDate(_ name: String, secondsFromNow seconds: Int) {
        let item = item(name)
        guard item.isValid else { return }
        let present = now[item.places.first?.loop ?? currentLoop]
        let date = now[currentLoop] + seconds
        item.date = item.repeats ? max(present, date) : date
        item.pastDate = item.repeats && date < present ? date : nil
        file(item)
        item.wasDated = true
    }

    func file(_ item: ModelItem) { for place in item.places { item.filedAt[place] = next() } }

    /// 5.18.
    func fire(_ name: String) {
        let item = item(name)
        guard item.isValid else { return }
        call(name)
        if item.kind == .timer { invalidate(name) }
    }

    func queueBlock(_ word: String) { blocks.append(Closure(word: word, number: next(), place: Place(loop: 0, mode: .normal))) }
    func queuePerform(_ word: String) { performs.append(Closure(word: word, number: next(), place: Place(loop: 0, mode: .normal))) }

    func state(_ name: String) -> String {
        let item = item(name)
        guard item.kind.isMember else { return item.kind == .delayed ? "\(item.isValid)" : "" }
        var text = item.isValid ? "v" : "-"
        if item.isIn(Place(loop: 0, mode: .normal)) { text += "n" }
        if item.isIn(Place(loop: 0, mode: .other)) { text += "o" }
        if item.isIn(Place(loop: 1, mode: .normal)) { text += "2" }
        if item.isCommon { text += "c" }
        return text + (hasDates && item.kind.isTimer && item.isValid ? (item.pastDate ?? item.date).map { "@\($0)" } ?? "@-" : "")
    }

    func onSecondLoop(_ body: () -> Void) {
        currentLoop = 1
        body()
        currentLoop = 0
    }

    /// 1.9.
    func stop(sticky: Bool) {
        if let frame = frames.last {
            frame.isStopped = true
            if sticky { frame.isSticky = true }
            isWoken = true
        } else if sticky {
            isStopKept = true
        }
    }

    func wakeUp() { isWoken = true }
}
