// Enumerates the worlds. In each, an actor's callout performs an action on the actor itself or on a second item, which is ready in the same
// pass and stands before or after the actor.

enum Worlds {
    /// A callout of an actor: the actor, the callout's word, and the hooks that lead to the callout.
    struct Callout {
        var actor: Item
        var word: String
        var call = 1
        /// The hooks that cause the callout if no step of a run does.
        var trigger: [Hook] = []
        var triggerItem: Item?
    }

    /// Only the long form starts a child process for each world.
    static let kinds = Kind.allCases.filter { $0 != .process || playsAllWorlds }

    static var callouts: [Callout] {
        let handlers = kinds.filter(\.hasHandler).map { kind in
            Callout(actor: Item("a", kind), word: kind.activity.map { "a:\($0)" } ?? "a")
        }
        func triggered(_ kind: Kind, _ word: String, call: Int = 1, by action: Action) -> Callout {
            Callout(actor: Item("a", kind), word: word, call: call, trigger: [Hook("t:T", [action])], triggerItem: Item("t", .seesT))
        }
        return handlers + [
            triggered(.source, "-a", by: .remove("a")), triggered(.source, "-a", by: .invalidate("a")),
            triggered(.source, "+a", call: 2, by: .readd("a")), triggered(.source, "+a@o", by: .addToOther("a")),
        ] + kinds.filter(\.isSource).map { triggered($0, "~a", by: .invalidate("a")) }
    }

    static func actions(on name: String) -> [Action] {
        [
            .remove(name), .invalidate(name), .readd(name), .move(name), .addToOther(name), .moveToLoop(name),
            .addToCommon(name), .removeFromCommon(name), .ready(name), .mute(name), .unmute(name), .rearm(name), .fire(name),
            .date(name, -5), .date(name, 0), .date(name, 2),
        ]
    }

    static let loopActions: [Action] = [
        .makeCommon, .stop, .stopSticky, .wakeUp, .run(.normal, 0), .run(.normal, 3), .run(.other, 0), .run(.other, 3), .block, .perform,
    ]

    struct Casting {
        var callout: Callout
        /// The item that the actions apply to; nil stands for the actor itself.
        var subject: Item?
        var subjectIsFirst = false

        var items: [Item] {
            let actors = subject.map { subjectIsFirst ? [$0, callout.actor] : [callout.actor, $0] } ?? [callout.actor]
            return (callout.triggerItem.map { [$0] } ?? []) + actors
        }

        var actions: [Action] {
            let subject = subject ?? callout.actor
            return Worlds.actions(on: subject.name).filter { $0.applies(to: subject.kind) }
        }

        func world(_ actions: [Action]) -> World {
            // A nested run in the other mode needs an item there.
            let isNested = actions.contains { if case .run(.other, _) = $0 { true } else { false } }
            var items = items
            var hooks = callout.trigger
            if isNested {
                items.insert(Item("m", .source), at: 0)
            }
            hooks.append(Hook(callout.word, call: callout.call, actions))
            return World(items: items, hooks: hooks)
        }
    }

    static var castings: [Casting] {
        callouts.flatMap { callout in
            [Casting(callout: callout)]
                + kinds.flatMap { kind in
                    [false, true].map { Casting(callout: callout, subject: Item("b", kind), subjectIsFirst: $0) }
                }
        }
    }

    static func variants(_ world: World) -> [World] {
        [true, false].flatMap { isObserved in
            [false, true].flatMap { returnsAfterSource in
                [false, true].map { isKept in
                    var world = world
                    (world.isObserved, world.returnsAfterSource, world.isKept) = (isObserved, returnsAfterSource, isKept)
                    return world
                }
            }
        }
    }

    /// The worlds with one action each.
    static var singles: [World] {
        castings.flatMap { casting in (casting.actions + loopActions).map { casting.world([$0]) } }
    }

    /// The worlds with one action each, with both items in both modes.
    static var inBothModes: [World] {
        castings.filter { $0.callout.trigger.isEmpty }.flatMap { casting -> [World] in
            let members = casting.items.filter(\.kind.isMember)
            if members.isEmpty { return [] }
            var casting = casting
            casting.callout.triggerItem = Item("t", .seesT)
            casting.callout.trigger = [Hook("t:T", members.map { .addToOther($0.name) })]
            return (casting.actions + loopActions).map { casting.world([$0]) }
        }
    }

    /// The actor runs the loop. In that run, or after it, the second item performs an action on either item.
    static var nested: [World] {
        castings.filter { $0.callout.trigger.isEmpty && $0.subject?.kind.hasHandler ?? false }.flatMap { casting in
            let (actor, subject) = (casting.callout.actor, casting.subject!)  // the filter has checked it
            var runs: [[Action]] = [[.run(.normal, 0)], [.run(.normal, 3)]]
            if subject.kind.isMember { runs += [0, 3].map { [.addToOther(subject.name), .run(.other, $0)] } }
            let actions =
                [actor, subject].flatMap { item in Worlds.actions(on: item.name).filter { $0.applies(to: item.kind) } } + loopActions
            return runs.flatMap { run in
                actions.map { action in
                    var world = casting.world(run)
                    world.hooks.append(Hook(subject.kind.activity.map { "\(subject.name):\($0)" } ?? subject.name, [action]))
                    return world
                }
            }
        }
    }

    /// The worlds with two actions in one callout.
    static var pairs: [World] {
        castings.flatMap { casting in
            let all = casting.actions + loopActions
            return all.flatMap { first in all.map { casting.world([first, $0]) } }
        }
    }
}
