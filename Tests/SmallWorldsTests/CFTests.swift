// The small worlds that CFRunLoop can play: custom sources, descriptors, timers, observers and blocks, in runs that poll. It is compared
// with the model, which the run loop is compared with elsewhere. What differs must be what docs/semantics.md says we do differently.

internal import EventLoopTestSupport
internal import Testing

@Suite struct CFTests {
    @Test func `CFRunLoop does the same, but for what the rules say`() throws {
        let all = Worlds.singles.filter(\.isInCF)
        // It takes its dates from the wall, so each world costs it a millisecond or two: the short form plays one in three.
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
