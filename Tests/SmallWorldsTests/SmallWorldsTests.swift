// All small worlds: every action on every kind of item, from every callout, on the item itself and on a second item that is ready in the
// same pass, before or after it. A model of the rules (Model.swift), written from docs/semantics.md and docs/run-sequence.md, gives each
// world's expected behavior. Claims.swift has the claims that hold in every world.
//
// The short form plays each world of one action once, in one of its eight variants (with or without observers, in runs that return after a
// source or do not, in modes that are kept from being empty or are not). The long form, `make worlds`, plays all variants, and all worlds
// of two actions.

import Testing

@Suite struct SmallWorldsTests {
    @Test func `every action from every callout does what the rules say`() throws {
        let worlds = Worlds.singles
        if playsAllWorlds {
            try checkAll(worlds.count * 8, { Worlds.variants(worlds[$0 / 8])[$0 % 8] }, check)
        } else {
            try checkAll(worlds.count / worldsStep, { Worlds.variants(worlds[$0 * worldsStep])[$0 % 8] }, check)
        }
    }

    @Test(.enabled(if: playsAllWorlds))
    func `every two actions from every callout do what the rules say`() throws {
        let worlds = Worlds.pairs
        try checkAll(worlds.count, { Worlds.variants(worlds[$0])[$0 % 8] }, check)
    }

    @Test(.enabled(if: playsAllWorlds))
    func `every action on items that are in two modes does what the rules say`() throws {
        let worlds = Worlds.inBothModes
        try checkAll(worlds.count, { Worlds.variants(worlds[$0])[$0 % 8] }, check)
    }

    @Test(.enabled(if: playsAllWorlds))
    func `every action from a run nested in another item's callout does what the rules say`() throws {
        let worlds = Worlds.nested
        try checkAll(worlds.count, { Worlds.variants(worlds[$0])[$0 % 8] }, check)
    }

    @Test func `a world that breaks a rule is reported`() throws {
        let world = World(items: [Item("a", .source), Item("b", .timer)], hooks: [Hook("a", [.invalidate("b")])])
        let other = World(items: [Item("a", .source), Item("b", .timer)], hooks: [Hook("a", [.remove("b")])])
        let complaint = compare(try playOnLoop(world), with: other)
        #expect(complaint?.contains("the rules say") == true)
    }
}
