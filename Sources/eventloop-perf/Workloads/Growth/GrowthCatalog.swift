// What is measured for growth, and beside what. The operations of each kind are in the order of the constants in CPerfPeers.h.

import CPerfPeers

enum GrowthCatalog {
    static var all: [Growth] {
        [
            Growth(
                "sources", sizes: Growth.sizes(upTo: 50_000), quickLimit: 3_000, descriptorsPerItem: 1,
                costs: [
                    .init("idle", "an event, beside n idle sources"),
                    .init("change", "remove and add a source, beside n", .batch),
                    .init("active", "an event, n sources active", .all),
                ], contenders: contenders(.sources, GrowthSources.make)),
            Growth(
                "connections", sizes: Growth.sizes(upTo: 20_000), quickLimit: 3_000, descriptorsPerItem: 2,
                costs: [.init("request", "a request and its answer, beside n open connections")],
                contenders: [GrowthContender(Contender.ours, make: GrowthConnections.make)]
                    + [GrowthContender("libevent", peer_libevent_growth_of_connections)].compactMap { $0 }),
            Growth(
                "timers", sizes: Growth.sizes(upTo: 10_000_000), quickLimit: 100_000, bytesPerItem: 400,
                costs: [
                    .init("add", "make and add a timer, beside n", .batch),
                    .init("cancel", "cancel and release a timer, beside n", .batch),
                    .init("rearm", "give one of n timers another date"),
                    .init("fire", "fire a timer, and put it off, beside n", .batch),
                    .init("ask", "the date of the next fire of n timers"),
                ], contenders: contenders(.timers, GrowthTimers.make)),
            Growth(
                "modes", sizes: Growth.sizes(upTo: 1_000), quickLimit: 1_000, descriptorsPerItem: 3,
                costs: [
                    .init("same", "a pass in one of n modes"),
                    .init("turns", "a pass in another of n modes each time"),
                    .init("common", "an event of a source in n modes"),
                ], contenders: [GrowthContender(Contender.ours, make: GrowthModes.make)]),
            Growth(
                "loops", sizes: Growth.sizes(upTo: 1_000), quickLimit: 100, descriptorsPerItem: 4,
                costs: [
                    .init("wake", "wake one of n loops, and wait for its answer"),
                    .init("make", "a thread with a loop, made and ended beside n"),
                ], contenders: contenders(.loops, GrowthLoops.make)),
            Growth(
                "observers", sizes: Growth.sizes(upTo: 10_000), quickLimit: 1_000,
                costs: [.init("pass", "an observer, in a pass that n hear", .all)],
                contenders: contenders(.hooks, GrowthObservers.make)),
            Growth(
                "posts", sizes: Growth.sizes(upTo: 1_000_000), quickLimit: 30_000,
                costs: [
                    .init("post", "post a closure, n times while the loop is held", .all),
                    .init("drain", "perform a closure, n pending", .all),
                ], contenders: GrowthPosts.contenders),
            Growth(
                "requests", sizes: Growth.sizes(upTo: 40_000), quickLimit: 1_000,
                costs: [
                    .init("answer", "answer the oldest of n pending requests", .batch),
                    .init("send", "send a request, beside n pending", .batch),
                    .init("cancel", "cancel the newest request, beside n pending", .batch),
                ], contenders: [GrowthContender(Contender.ours, make: GrowthRequests.make)]),
        ]
    }

    private enum Kind {
        case sources, timers, loops, hooks
        var cKind: perf_growing {
            switch self {
            case .sources: PERF_GROWING_SOURCES
            case .timers: PERF_GROWING_TIMERS
            case .loops: PERF_GROWING_LOOPS
            case .hooks: PERF_GROWING_HOOKS
            }
        }
    }

    private static func contenders(_ kind: Kind, _ make: @escaping @Sendable (Int) -> GrowthRig) -> [GrowthContender] {
        let peer = kind.cKind
        return [GrowthContender(Contender.ours, make: make)]
            + [GrowthContender("libevent", { peer_libevent_growth(peer) })].compactMap { $0 }
    }

    /// All, with another library whose functions are in C.
    static func adding(_ name: String, to all: [Growth], _ functions: @escaping @Sendable (perf_growing) -> perf_growth) -> [Growth] {
        let kinds = ["sources": Kind.sources, "timers": .timers, "loops": .loops, "observers": .hooks]
        return all.map { growth in
            guard let kind = kinds[growth.id]?.cKind, let contender = GrowthContender(name, { functions(kind) }) else { return growth }
            var growth = growth
            growth.contenders.append(contender)
            return growth
        }
    }
}
