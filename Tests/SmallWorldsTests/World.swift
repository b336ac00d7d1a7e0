// A small world: at most three items, and the actions of their callouts. A world is data, so that the rules' model, the run loop and
// CFRunLoop can all play it, and so that it can be printed.
//
// The words of a trace in the default mode; in the mode `other` they begin with "o:".
//
//     E T S W A X    an activity of the run
//     a              the handler of the item a was called; an item that observes adds the activity, as "a:W"
//     +a@o  -a@o     `schedule` and `cancel` of the custom source a, for the mode `other`
//     ~a             `onInvalidation` of the source a
//     =stopped       a run returned
//     k  p           a block, a perform that an action queued

/// The kind of an item.
enum Kind: String, CaseIterable, Sendable {
    case source, level, edge, oneShot, port, signal, listener, process
    case timer, ticker, onDemand, delayed
    case block, perform
    case seesE, seesT, seesS, seesW, seesA, seesX
    case onceE, onceT, onceS, onceW, onceA, onceX
    case keepAlive

    /// The activity for which an observer is called.
    var activity: Character? { rawValue.hasPrefix("sees") || rawValue.hasPrefix("once") ? rawValue.last : nil }
    var isObserver: Bool { activity != nil }
    var isSource: Bool { isWatched || self == .source || self == .port }
    /// Whether the kernel makes the item ready.
    var isWatched: Bool { isDescriptor || self == .signal || self == .listener || self == .process }
    var isDescriptor: Bool { [.level, .edge, .oneShot].contains(self) }
    var isTimer: Bool { [.timer, .ticker, .onDemand, .delayed].contains(self) }
    /// Whether `add` and `remove` accept it.
    var isMember: Bool { isSource || isObserver || (isTimer && self != .delayed) }
    /// Whether its handler is ever called.
    var hasHandler: Bool { self != .keepAlive }
}

/// An action of a callout.
enum Action: Hashable, Sendable {
    case remove(String), invalidate(String), readd(String), move(String), addToOther(String), moveToLoop(String)
    case addToCommon(String), removeFromCommon(String)
    /// Makes `other` a common mode.
    case makeCommon
    /// Makes the item ready once more, with a signal, a byte, a message or a connection.
    case ready(String)
    case mute(String), unmute(String), rearm(String), fire(String)
    /// Sets a timer's date, in seconds from now.
    case date(String, Int)
    case stop, stopSticky, wakeUp
    /// Runs the default mode or `other`; with zero seconds the run makes one pass.
    case run(Mode, Int)
    case block, perform
}

enum Mode: String, Sendable { case normal, other }

struct Item: Hashable, Sendable {
    var name: String
    var kind: Kind
    init(_ name: String, _ kind: Kind) { (self.name, self.kind) = (name, kind) }
    /// The item m begins in the other mode; all other items begin in the default mode.
    var isInOther: Bool { name == "m" }
}

/// The actions of one callout.
struct Hook: Hashable, Sendable {
    /// The word of the callout, and its ordinal number.
    var word: String
    var call: Int
    var actions: [Action]
    init(_ word: String, call: Int = 1, _ actions: [Action]) { (self.word, self.call, self.actions) = (word, call, actions) }
}

struct World: Hashable, Sendable {
    /// The items, in the order in which they are added and made ready.
    var items: [Item]
    var hooks: [Hook]
    /// Whether observers of all activities write the letters.
    var isObserved = true
    /// Whether the outermost runs return after a source.
    var returnsAfterSource = false
    /// Whether both modes are kept from being empty.
    var isKept = false

    var usesSecondLoop: Bool {
        hooks.contains { $0.actions.contains { if case .moveToLoop = $0 { true } else { false } } }
    }

    func kind(_ name: String) -> Kind { items.first { $0.name == name }!.kind }

    /// The expression that creates this world.
    var source: String {
        let items = items.map { "Item(\"\($0.name)\", .\($0.kind.rawValue))" }.joined(separator: ", ")
        let hooks = hooks.map { hook in
            let actions = hook.actions.map(\.source).joined(separator: ", ")
            return "Hook(\"\(hook.word)\"\(hook.call == 1 ? "" : ", call: \(hook.call)"), [\(actions)])"
        }
        return """
            World(
                items: [\(items)], hooks: [\(hooks.joined(separator: ", "))],
                isObserved: \(isObserved), returnsAfterSource: \(returnsAfterSource), isKept: \(isKept))
            """
    }
}

extension Action {
    var source: String {
        switch self {
        case .run(let mode, let seconds): ".run(.\(mode.rawValue), \(seconds))"
        default: ".\(self)"
        }
    }

    /// The item that the action applies to.
    var item: String? {
        switch self {
        case .remove(let name), .invalidate(let name), .readd(let name), .move(let name), .addToOther(let name), .moveToLoop(let name),
            .addToCommon(let name), .removeFromCommon(let name), .ready(let name), .mute(let name), .unmute(let name), .rearm(let name),
            .fire(let name), .date(let name, _):
            name
        case .stop, .stopSticky, .wakeUp, .run, .block, .perform, .makeCommon: nil
        }
    }

    /// Whether the action applies to an item of that kind.
    func applies(to kind: Kind) -> Bool {
        switch self {
        case .remove, .readd, .move, .addToOther, .moveToLoop, .addToCommon, .removeFromCommon: kind.isMember
        case .invalidate: kind.isMember || kind == .delayed || kind == .keepAlive
        case .ready: kind.isSource && kind != .process
        case .mute, .unmute: kind.isDescriptor
        case .rearm: kind == .oneShot
        case .fire, .date: kind.isTimer && kind != .delayed
        case .stop, .stopSticky, .wakeUp, .run, .block, .perform, .makeCommon: true
        }
    }
}
