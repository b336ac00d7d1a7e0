// The small worlds that CFRunLoop can play: custom sources, descriptors, timers, observers and blocks, in runs that poll. These tests
// compare CFRunLoop with the model; other tests compare the run loop with the model. Each difference must be one in docs/semantics.md.

internal import EventLoopTestSupport
internal import Testing

@Suite struct CFTests {
    @Test func `CFRunLoop does the same as the model, except where the rules say otherwise`() throws {
        let all = Worlds.singles.filter(\.isInCF)
        // CFRunLoop takes its dates from the wall clock, so each world takes a millisecond or two. The short form plays one world in three.
        let worlds =
            playsAllWorlds
            ? all + Worlds.pairs.filter(\.isInCF) : all.enumerated().filter { $0.offset % (3 * worldsStep) == 0 }.map(\.element)
        let found = Locked<[String: Int]>([:])
        try checkAll(worlds.count, { worlds[$0] }, { world in try checkBeside(world, counting: found) })
        let rules = found.withLock { $0 }
        print(
            "differences from CFRunLoop by rule:", rules.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }.joined(separator: ", ")
        )
        if playsAllWorlds && playsEveryPart {
            #expect(rules.keys.sorted() == ["1.6", "3.10", "4.1", "4.2", "5.4", "7.3"], "each of these differences is there, and no other")
        }
    }
}
